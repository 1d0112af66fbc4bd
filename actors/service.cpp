#include "actors/service.hpp"

#include "actors/product_version.hpp"
#include <utility>

#include <fmt/format.h>

#include "actors/actor_host.hpp"
#include "actors/engine_loading.hpp"
#include "actors/http_front.hpp"
#include "messages/wire.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/metrics.hpp"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;

/// Weights are most of the way; what follows them has no measure.
constexpr double share_of_weights = 0.9;
constexpr double share_before_warm_up = 0.95;

constexpr auto warm_up_limit = 60s;
/// Of questions about the engine, which must not hold up signals for long.
constexpr auto question_limit = 2s;

/// The actor system, with the network's modules where the settings want its door.
result<std::shared_ptr<actor_host>> open_host(const actor_settings&) {
  return std::make_shared<actor_host>();
}

}  // namespace

service::service(effective_config config, node_parts parts)
  : config_(std::move(config)),
    parts_(std::move(parts)) {}

service::~service() {
  stop(0ms);
}

result<std::unique_ptr<service>> service::open(effective_config config,
                                               const std::string& model_name) {
  const auto& settings = config.settings;
  node_parts parts;
  parts.counts = std::make_shared<metrics>(settings.observability.metrics_prefix, model_name);
  parts.counts->set(metric::build_info, 1.0, {product_version(), "g++ " __VERSION__});
  std::unique_ptr<service> out(new service(std::move(config), std::move(parts)));
  const auto& held = out->config_.settings;
  DI_TRY(out->front_, http_front::open(held, out->parts_.counts.get()));
  out->url_ = url_of(held.server.host, out->front_->port());
  DI_TRY(out->parts_.host, open_host(held.actor));
  return out;
}

result<void> service::warm_up(const client& engine) const {
  generate_request request;
  request.text = "1";
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = 2;
  request.sampling.ignore_eos = true;
  const auto answer = engine.generate_sync(request, warm_up_limit);
  if (!answer) return tl::unexpected<error>(error(answer.error()).within("the first answer"));
  return {};
}

result<void> service::load(const std::string& path, const load_progress& on_progress) {
  front_->note_loading(0.0, "opening the checkpoint");
  const auto progress = [&](std::uint64_t done, std::uint64_t total) {
    const auto share = total == 0 ? 0.0 : static_cast<double>(done) / static_cast<double>(total);
    front_->note_loading(share * share_of_weights,
                         done < total ? "reading weights" : "preparing the engine");
    if (on_progress) on_progress(done, total);
  };
  DI_TRY(node_, load_engine(config_.settings, path, progress, parts_));
  auto engine = node_->connect();
  front_->note_loading(share_before_warm_up, "warming up");
  DI_TRY_VOID(warm_up(engine));
  attach(std::move(engine));
  return {};
}

void service::attach(client engine) {
  engine_ = engine;
  front_->attach(std::move(engine));
}

std::optional<service_counts> service::counts() const {
  if (!engine_) return std::nullopt;
  const auto bytes = engine_->call(verb::stats, {}, question_limit);
  if (!bytes) return std::nullopt;
  const auto stats = from_wire<node_stats>(*bytes);
  if (!stats) return std::nullopt;
  service_counts out;
  out.stats = *stats;
  out.prompt_tokens = parts_.counts->value(metric::prompt_tokens_total);
  out.prefix_queries = parts_.counts->value(metric::prefix_cache_queries_total);
  out.prefix_hits = parts_.counts->value(metric::prefix_cache_hits_total);
  return out;
}

std::string service::report() const {
  if (!engine_) return "loading";
  std::string out;
  const auto now = counts();
  if (!now) return "the engine does not answer";
  for_each_field(now->stats, [&](std::string_view name, const auto& value) {
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", name, value);
  });
  const auto bytes = engine_->call(verb::requests, {}, question_limit);
  const auto list = bytes ? from_wire<request_list>(*bytes) : fail(bytes.error().code, "");
  if (!list) return out;
  for (const auto& it : list->requests)
    out += fmt::format("\n  {} {} replica {} prompt {} cached {} output {} age {:.1f} s", it.id,
                       it.state, it.replica, it.prompt_tokens, it.cached_tokens, it.output_tokens,
                       static_cast<double>(it.age_us) * 1e-6);
  return out;
}

std::chrono::milliseconds service::stats_interval() const {
  return config_.settings.observability.stats_interval;
}

void service::begin_drain(std::chrono::milliseconds limit, std::function<void()> on_idle) {
  front_->begin_drain();
  // An engine elsewhere serves others as well: only this door closes, and `stop` waits for it.
  if (!node_) return on_idle();
  engine_->call(
    verb::drain, to_wire(number_call{limit.count()}),
    [on_idle = std::move(on_idle)](result<std::string> left) {
      if (!left) log(severity::warning, "drain: {}", left.error().message);
      on_idle();
    },
    limit + question_limit);
}

void service::stop(std::chrono::milliseconds deadline) {
  if (front_) front_->stop(deadline);
  front_.reset();
  engine_.reset();
  if (node_) node_->stop();
}

}  // namespace deepinfer
