#include "actors/service_text.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "config/units.hpp"
#include "runtime/base/counted.hpp"

namespace deepinfer {
namespace {

/// For what is on its way to clients when the last request has ended.
constexpr std::chrono::milliseconds last_words{1'000};

double share(double part, double whole) {
  return whole <= 0.0 ? 0.0 : part / whole;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

std::string grouped(std::int64_t number) {
  auto digits = fmt::format("{}", number);
  const std::size_t begin = number < 0 ? 1 : 0;
  for (auto at = digits.size(); at > begin + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string url_of(std::string_view host, std::uint16_t port) {
  const bool is_v6 = host.find(':') != std::string_view::npos;
  return fmt::format("http://{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
}

std::vector<std::string> changed_settings(const effective_config& config) {
  std::vector<std::string> out;
  for (const auto& value : config.values)
    if (value.origin != "default")
      out.push_back(fmt::format("{} {} ({})", value.key, value.shown(), value.origin));
  return out;
}

std::vector<std::string> exposure_warnings(const engine_settings& settings) {
  std::vector<std::string> out;
  const auto& server = settings.server;
  const bool has_key = !server.api_keys.empty() || !server.api_key_file.empty();
  if (!is_loopback(server.host) && !has_key)
    out.push_back(fmt::format("server.host {}: whoever reaches this address may use and stop this "
                              "node; set --api-key or --api-key-file",
                              server.host));
  return out;
}

std::string ready_line(const node_facts& facts, const std::string& url) {
  const auto tokens = std::int64_t{facts.num_kv_blocks} * facts.block_size;
  const auto full = (facts.max_model_len + facts.block_size - 1) / std::max(1, facts.block_size);
  // A request lives on one replica.
  const auto replicas = std::max(1, facts.replicas);
  const auto requests = replicas * (facts.num_kv_blocks / replicas / std::max(1, full));
  return fmt::format("Ready: {} (model {}, {} KV blocks x {} = {} tokens, about {} at full "
                     "length)",
                     url, facts.model_name, facts.num_kv_blocks, facts.block_size, grouped(tokens),
                     counted(requests, "request"));
}

std::optional<std::string> cores_hint(std::int32_t device_threads, std::int32_t cores) {
  if (cores < 2 || device_threads < cores) return std::nullopt;
  return fmt::format("the device's {} threads take all {} cores: steps are planned and HTTP is "
                     "served in between, which a trace shows as an idle device; --num-threads {} "
                     "leaves them a core",
                     device_threads, cores, cores - 1);
}

std::string stopping_line(std::chrono::milliseconds limit) {
  return fmt::format("stopping: new requests are refused, open ones have {}; a second signal ends "
                     "them with an error, a third without",
                     duration_text(limit.count()));
}

std::chrono::milliseconds time_for_answers(std::chrono::milliseconds left) {
  return left.count() > 0 ? std::max(left, last_words) : left;
}

std::optional<std::string> status_line::next(const service_counts& now, double seconds) {
  const auto last = std::exchange(last_, now);
  const auto& a = last.stats;
  const auto& b = now.stats;
  const bool has_moved = a.running != b.running || a.queued != b.queued || a.steps != b.steps ||
                         a.tokens_out != b.tokens_out || a.preemptions != b.preemptions ||
                         a.rank_restarts != b.rank_restarts;
  if (!has_moved) return std::nullopt;
  // A rank that was started again counts from zero.
  const auto moved = [](auto before, auto after) {
    return after < before ? static_cast<double>(after) : static_cast<double>(after - before);
  };
  const auto per_second = [seconds](double count) { return count / std::max(seconds, 1e-3); };
  const auto queries = moved(last.prefix_queries, now.prefix_queries);
  const auto hits = moved(last.prefix_hits, now.prefix_hits);
  const auto span = moved(a.device_span_ns, b.device_span_ns);
  const auto busy = moved(a.device_busy_ns, b.device_busy_ns);
  const auto used = b.kv_blocks_total - b.kv_blocks_free - b.kv_blocks_cached;
  return fmt::format("run {} wait {} | prompt {:.0f} tok/s gen {:.0f} tok/s | kv {:.1f} % hit "
                     "{:.0f} % | step {:.1f} "
                     "ms idle {:.1f} % | defer {} preempt {}",
                     b.running, b.queued, per_second(moved(last.prompt_tokens, now.prompt_tokens)),
                     per_second(moved(a.tokens_out, b.tokens_out)),
                     100.0 * share(static_cast<double>(std::max<std::int64_t>(0, used)),
                                   static_cast<double>(b.kv_blocks_total)),
                     100.0 * share(hits, queries), 1e-6 * share(span, moved(a.steps, b.steps)),
                     100.0 * std::max(0.0, 1.0 - share(busy, span > 0.0 ? span : busy)),
                     b.deferred_blocks, moved(a.preemptions, b.preemptions));
}

}  // namespace deepinfer
