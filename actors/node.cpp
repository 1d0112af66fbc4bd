#include "actors/node.hpp"

#include <algorithm>

#include "actors/actor_host.hpp"
#include "actors/client_state.hpp"
#include "actors/gateway.hpp"
#include "actors/rank_hooks.hpp"
#include "actors/rank_policy.hpp"
#include "actors/rank_supervisor.hpp"
#include "actors/router.hpp"
#include "runtime/base/metrics.hpp"
#include "runtime/base/trace_ring.hpp"
#include "runtime/device/device.hpp"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;

constexpr auto control_timeout = 10s;

scheduler_config scheduler_config_of(const engine_settings& settings,
                                     const rank_machines& machines) {
  const auto& sizes = machines.runner->config();
  const auto& engine = settings.engine;
  scheduler_config config;
  config.depth = engine.depth;
  config.max_depth = sizes.depth;
  config.num_drafts = sizes.num_drafts;
  config.draft_overhang = sizes.draft_overhang;
  config.max_num_seqs = sizes.max_num_seqs;
  config.max_num_batched_tokens = sizes.max_num_batched_tokens;
  config.chunk_size = engine.chunk_size;
  config.max_model_len = sizes.max_model_len;
  config.num_kv_blocks = sizes.num_kv_blocks;
  config.block_size = sizes.block_size;
  config.state_slots = sizes.state_slots;
  config.eos_ids = machines.eos_ids;
  config.think_end = machines.think_end;
  config.prefix_cache = sizes.prefix_cache;
  config.resume_stride = sizes.resume_stride;
  config.policy = policy_of(engine);
  config.vocab_size = machines.runner->vocab_size();
  config.mixed_steps = engine.mixed_steps;
  config.max_queued = settings.server.max_queued_requests;
  return config;
}

}  // namespace

/// Members are destroyed in reverse order: actors before the device, doors after both.
struct node::machinery {
  machinery(rank_machines brought, node_parts given)
    : machines(std::move(brought)),
      parts(std::move(given)) {
    if (!parts.host) parts.host = std::make_shared<actor_host>();
    if (!parts.counts) parts.counts = std::make_shared<metrics>();
  }

  ~machinery() { stop(); }

  void stop() {
    if (std::exchange(has_stopped, true)) return;
    caf::scoped_actor self{system(), true};
    self->send(gateway_handle, stop_atom::value);
    self->wait_for(gateway_handle);
    self->send(supervisor, stop_atom::value);
    self->wait_for(supervisor);
    self->send(door, stop_atom::value);
    self->wait_for(door);
    machines.on.reset();  // runs what was enqueued and calls every completion
    doors.clear();
    gateway_handle = nullptr;
    supervisor = nullptr;
    door = nullptr;
  }

  caf::actor_system& system() { return parts.host->system(); }

  rank_machines machines;
  device_doors doors;
  node_parts parts;
  gateway_actor gateway_handle;
  supervisor_actor supervisor;
  node_door_actor door;
  bool has_stopped = false;
};

node::node(std::unique_ptr<machinery> running, node_facts facts)
  : running_(std::move(running)),
    facts_(std::move(facts)) {}

node::~node() = default;

std::unique_ptr<node> node::start(const engine_settings& settings, rank_machines machines,
                                  node_facts facts, node_parts parts) {
  auto running = std::make_unique<machinery>(std::move(machines), std::move(parts));
  gateway_config door;
  door.intake = running->machines.intake;
  door.seed = settings.engine.seed;
  door.counts = running->parts.counts.get();
  door.on_accepted = running->machines.on_accepted;
  door.on_forgotten = running->machines.on_forgotten;
  door.max_open_requests = settings.server.max_queued_requests + settings.engine.max_num_seqs;
  running->gateway_handle = running->system().spawn(gateway, std::move(door));
  rank_config rank;
  rank.scheduler = scheduler_config_of(settings, running->machines);
  rank.runner = running->machines.runner;
  rank.on = running->machines.on.get();
  rank.texts = running->machines.texts.get();
  rank.grammars = running->machines.grammars.get();
  rank.sizer = running->machines.sizer;
  rank.watchdog = settings.engine.watchdog;
  rank.trace_steps = static_cast<std::size_t>(settings.observability.trace_buffer_steps);
  rank.hooks.pace = running->machines.pace;
  rank.counts = running->parts.counts.get();
  running->supervisor = running->system().spawn(rank_supervisor, std::move(rank),
                                              running->gateway_handle, &running->doors);
  running->door =
    running->system().spawn(router, router_links{running->gateway_handle, running->supervisor});
  return std::unique_ptr<node>(new node(std::move(running), std::move(facts)));
}

client node::connect() const {
  return client(std::make_shared<client::state>(running_->system(), running_->door));
}

const request_intake& node::intake() const {
  return *running_->machines.intake;
}

result<std::string> node::trace(std::uint32_t steps) const {
  DI_TRY(const auto entries,
         ask_and_wait<std::vector<step_trace>>(running_->system(), running_->supervisor,
                                               control_timeout, trace_atom::value, steps));
  return chrome_trace(entries);
}

result<bool> node::pause() const {
  scheduler_order order;
  order.what = scheduler_order::verb::pause;
  return ask_and_wait<bool>(running_->system(), running_->supervisor, control_timeout, order);
}

result<bool> node::resume() const {
  scheduler_order order;
  order.what = scheduler_order::verb::resume;
  return ask_and_wait<bool>(running_->system(), running_->supervisor, control_timeout, order);
}

result<bool> node::set_depth(std::int32_t depth) const {
  scheduler_order order;
  order.what = scheduler_order::verb::set_depth;
  order.depth = depth;
  return ask_and_wait<bool>(running_->system(), running_->supervisor, control_timeout, order);
}

result<bool> node::kill(const std::string& actor_name) const {
  return ask_and_wait<bool>(running_->system(), running_->supervisor, control_timeout,
                            kill_atom::value, actor_name);
}

void node::stop() {
  running_->stop();
}

}  // namespace deepinfer
