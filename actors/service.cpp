#include "actors/service.hpp"

#include <utility>

#include <fmt/format.h>

#include "actors/actor_host.hpp"
#include "actors/engine_loading.hpp"
#include "actors/host_address.hpp"
#include "actors/http_front.hpp"
#include "actors/network_doors.hpp"
#include "actors/node_census.hpp"
#include "actors/product_version.hpp"
#include "messages/wire.hpp"
#include "runtime/base/file.hpp"
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

}  // namespace

service::service(effective_config config, node_parts parts)
  : config_(std::move(config)),
    live_(std::make_shared<live_config>(config_)),
    parts_(std::move(parts)) {
  live_->note_chosen("actor.node_name", config_.settings.actor.node_name);
}

service::~service() {
  stop(0ms);
}

result<std::unique_ptr<service>>
service::open(effective_config config, const std::string& model_name, const host_options& pool) {
  auto& settings = config.settings;
  // One name, at both doors.
  if (auto& name = settings.actor.node_name; name.empty())
    name =
      default_node_name(settings.actor.is_enabled ? settings.actor.port : settings.server.port);
  node_parts parts;
  parts.counts = std::make_shared<metrics>(settings.observability.metrics_prefix, model_name);
  parts.counts->set(metric::build_info, 1.0, {product_version(), "g++ " __VERSION__});
  std::unique_ptr<service> out(new service(std::move(config), std::move(parts)));
  const auto& held = out->config_.settings;
  DI_TRY(out->front_, http_front::open(held, out->parts_.counts.get()));
  out->url_ = url_of(held.server.host, out->front_->port());
  auto actor = held.actor;
  if (!actor.is_enabled) actor.host = "127.0.0.1";  // nothing listens; links may go out
  DI_TRY(out->parts_.host, actor_host::open(actor, pool));
  DI_TRY(out->network_, network_doors::open(out->parts_.host, held));
  return out;
}

result<void> service::warm_up(const client& engine) const {
  generate_request request;
  request.text = "1";
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = 2;
  if (node_->facts().max_model_len < 4) request.sampling.max_tokens = 1;  // BOS and "1" are there
  request.sampling.ignore_eos = true;
  const auto answer = engine.generate_sync(request, warm_up_limit);
  if (!answer) return tl::unexpected<error>(error(answer.error()).within("the first answer"));
  return {};
}

result<void> service::load(const std::string& path, const load_progress& on_progress) {
  note_loading(0.0, "opening the checkpoint");
  const auto progress = [&](std::uint64_t done, std::uint64_t total) {
    const auto share = total == 0 ? 0.0 : static_cast<double>(done) / static_cast<double>(total);
    note_loading(share * share_of_weights,
                 done < total ? "reading weights" : "preparing the engine");
    if (on_progress) on_progress(done, total);
  };
  DI_TRY(node_, load_engine(live_, path, progress, parts_));
  note_loading(share_before_warm_up, "warming up");
  DI_TRY_VOID(warm_up(node_->connect()));
  return open_doors();
}

result<void> service::connect(const peer_options& peers) {
  is_gateway_ = true;
  DI_TRY(node_, open_peers(live_, peers, parts_));
  return open_doors();
}

result<void> service::open_doors() {
  engine_ = node_->connect();
  if (network_) {
    DI_TRY_VOID(network_->attach(*engine_, *node_));
  } else if (!is_gateway_) {
    node_census alone;
    alone.note(config_.settings.actor.node_name, true);
    alone.tell(parts_.counts.get());
  }
  front_->attach(*engine_);
  return {};
}

void service::note_loading(double progress, const std::string& stage) {
  front_->note_loading(progress, stage);
  if (network_) network_->note_loading(progress, stage);
}

std::optional<std::uint16_t> service::actor_port() const {
  if (!network_) return std::nullopt;
  return network_->port();
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
  return live_->settings().observability.stats_interval;
}

void service::begin_drain(std::chrono::milliseconds limit, std::function<void()> on_idle) {
  front_->begin_drain();
  if (!engine_) return on_idle();
  engine_->call(
    verb::drain, to_wire(number_call{limit.count()}),
    [on_idle = std::move(on_idle)](result<std::string> left) {
      if (!left) log(severity::warning, "drain: {}", left.error().message);
      on_idle();
    },
    limit + question_limit);
}

/// The newest steps, where the settings name a file for them.
void service::write_trace() const {
  const auto& observability = config_.settings.observability;
  if (observability.trace_file.empty() || !node_ || is_gateway_) return;
  const auto steps = static_cast<std::uint32_t>(observability.trace_buffer_steps);
  const auto text = node_->trace(steps);
  const auto written = text ? write_file(observability.trace_file, *text)
                            : result<void>(tl::unexpected<error>(text.error()));
  if (!written) log(severity::error, "step trace: {}", written.error().message);
}

void service::stop(std::chrono::milliseconds deadline) {
  if (!front_) return;
  front_->stop(deadline);
  write_trace();
  if (network_) network_->stop();
  engine_.reset();
  if (node_) node_->stop();
  front_.reset();
}

}  // namespace deepinfer
