#include "actors/node.hpp"

#include <algorithm>

#include "actors/client_state.hpp"
#include "actors/gateway.hpp"
#include "actors/node_state.hpp"
#include "actors/rank_hooks.hpp"
#include "actors/rank_policy.hpp"
#include "runtime/base/check.hpp"
#include "runtime/base/trace_ring.hpp"
#include "runtime/device/device.hpp"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;

constexpr auto control_timeout = 10s;

/// More than the router sends, of which one request may be larger than the capacity.
std::int32_t open_most(const engine_settings& settings, std::int32_t max_num_seqs) {
  return std::max(max_num_seqs + ahead_of(max_num_seqs) + settings.server.max_n,
                  settings.server.max_queued_requests + max_num_seqs);
}

scheduler_config scheduler_config_of(const engine_settings& settings, const rank_machines& machines,
                                     std::int32_t replica) {
  const auto& sizes = machines.runner->config();
  const auto& engine = settings.engine;
  scheduler_config config;
  config.rank = rank_id{static_cast<decltype(rank_id::value)>(replica)};
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
  config.max_queued = open_most(settings, sizes.max_num_seqs);
  return config;
}

router_links router_links_of(const engine_settings& settings, const node_facts& facts,
                             metrics* counts, bool is_served) {
  router_links out;
  out.config = router_config_of(settings);
  out.node_name = settings.actor.node_name;
  out.counts = counts;
  out.max_n = settings.server.max_n;
  if (is_served) out.log_requests = settings.observability.log_requests;
  if (facts.max_model_len > 0) out.max_outputs = facts.max_model_len;
  return out;
}

gateway_config gateway_config_of(const engine_settings& settings, const rank_machines& machines,
                                 metrics* counts, const router_actor& door, std::int32_t replica) {
  gateway_config out;
  out.intake = machines.intake;
  out.seed = settings.engine.seed;
  out.counts = counts;
  out.on_accepted = machines.on_accepted;
  out.on_forgotten = machines.on_forgotten;
  out.max_open_requests = open_most(settings, machines.runner->config().max_num_seqs);
  out.max_n = settings.server.max_n;
  out.queue_timeout = settings.server.queue_timeout;
  out.slow_consumer_timeout = settings.server.slow_consumer_timeout;
  out.log_requests = settings.observability.log_requests;
  out.watcher = door;
  out.replica = replica;
  return out;
}

rank_config rank_config_of(const engine_settings& settings, const rank_machines& machines,
                           metrics* counts, std::int32_t replica) {
  rank_config out;
  out.scheduler = scheduler_config_of(settings, machines, replica);
  out.runner = machines.runner;
  out.on = machines.on.get();
  out.texts = machines.texts.get();
  out.grammars = machines.grammars.get();
  out.sizer = machines.sizer;
  out.watchdog = settings.engine.watchdog;
  out.trace_steps = static_cast<std::size_t>(settings.observability.trace_buffer_steps);
  out.hooks.pace = machines.pace;
  out.counts = counts;
  return out;
}

}  // namespace

node::machinery::machinery(node_parts given)
  : parts(std::move(given)),
    is_served(parts.host != nullptr) {
  if (!parts.host) parts.host = std::make_shared<actor_host>();
  if (!parts.counts) parts.counts = std::make_shared<metrics>();
}

void node::machinery::start_router(const engine_settings& settings, const node_facts& facts) {
  door = system().spawn(router, router_links_of(settings, facts, parts.counts.get(), is_served));
}

void node::machinery::add_replica(const engine_settings& settings, rank_machines brought) {
  const auto number = numbers++;
  auto it = std::make_unique<replica>(std::move(brought));
  auto* counts = parts.counts.get();
  auto front = gateway_config_of(settings, it->machines, counts, door, number);
  // A program that has a node to itself is told all of its requests anyway.
  if (!is_served) front.log_requests = request_logging::off;
  front.spans = spans;
  it->gateway = system().spawn(gateway, std::move(front));
  it->supervisor =
    system().spawn(rank_supervisor, rank_config_of(settings, it->machines, counts, number),
                   it->gateway, &it->doors);
  replica_link link;
  link.replica = number;
  link.front = it->gateway;
  link.supervisor = it->supervisor;
  link.slots = it->machines.runner->config().max_num_seqs;
  link.ahead = ahead_of(link.slots);
  link.name = std::to_string(number);
  tell_from_outside(door, join_atom::value, std::move(link));
  replicas.push_back(std::move(it));
}

std::int32_t node::machinery::add_remote(const remote_node& there, const front_maker& make) {
  const auto number = numbers++;
  replica_link link;
  link.replica = number;
  auto made = make(door, number);
  link.front = std::move(made.front);
  link.on_left = std::move(made.on_left);
  link.slots = there.capacity;
  link.is_peer = there.is_peer;
  link.name = there.name;
  tell_from_outside(door, join_atom::value, std::move(link));
  return number;
}

void node::machinery::remove_remote(std::int32_t number) {
  tell_from_outside(door, leave_atom::value, number);
}

void node::machinery::set_control(control_actor answers) {
  control = std::move(answers);
  tell_from_outside(door, join_atom::value, control);
}

void node::machinery::stop() {
  if (std::exchange(has_stopped, true)) return;
  caf::scoped_actor self{system(), true};
  const auto end = [&self](auto& handle) {
    if (!handle) return;
    self->send(handle, stop_atom::value);
    self->wait_for(handle);
    handle = nullptr;
  };
  self->send(door, close_atom::value);
  for (auto& it : replicas) end(it->gateway);
  for (auto& it : replicas) end(it->supervisor);
  end(control);
  end(door);
  for (auto& it : replicas)
    it->machines.on.reset();  // runs what was enqueued and calls every completion
}

node::node(std::unique_ptr<machinery> running, node_facts facts)
  : running_(std::move(running)),
    facts_(std::move(facts)) {}

node::~node() = default;

std::unique_ptr<node> node::start(const engine_settings& settings, rank_machines machines,
                                  node_facts facts, node_parts parts) {
  std::vector<rank_machines> one;
  one.push_back(std::move(machines));
  return start(settings, std::move(one), std::move(facts), std::move(parts));
}

std::unique_ptr<node> node::start(const engine_settings& settings,
                                  std::vector<rank_machines> machines, node_facts facts,
                                  node_parts parts) {
  facts.replicas = static_cast<std::int32_t>(machines.size());
  auto running = std::make_unique<machinery>(std::move(parts));
  running->start_router(settings, facts);
  for (auto& it : machines) running->add_replica(settings, std::move(it));
  return std::unique_ptr<node>(new node(std::move(running), std::move(facts)));
}

client node::connect() const {
  return client(std::make_shared<client::state>(running_->system(), running_->door));
}

const request_intake& node::intake() const {
  DI_CHECK(!running_->replicas.empty(), "a node without replicas has no intake");
  return *running_->replicas.front()->machines.intake;
}

result<std::string> node::trace(std::uint32_t steps) const {
  std::vector<step_trace> entries;
  for (const auto& it : running_->replicas) {
    DI_TRY(const auto more,
           ask_and_wait<std::vector<step_trace>>(running_->system(), it->supervisor,
                                                 control_timeout, trace_atom::value, steps));
    entries.insert(entries.end(), more.begin(), more.end());
  }
  return chrome_trace(entries, *running_->spans);
}

result<bool> node::order(std::uint8_t what, std::int32_t depth, std::int32_t replica) const {
  scheduler_order order;
  order.what = static_cast<scheduler_order::verb>(what);
  order.depth = depth;
  bool did_all = true;
  for (std::size_t i = 0; i < running_->replicas.size(); ++i) {
    if (replica != all_replicas && static_cast<std::size_t>(replica) != i) continue;
    DI_TRY(const auto did, ask_and_wait<bool>(running_->system(), running_->replicas[i]->supervisor,
                                              control_timeout, order));
    did_all = did_all && did;
  }
  return did_all;
}

result<bool> node::pause(std::int32_t replica) const {
  return order(static_cast<std::uint8_t>(scheduler_order::verb::pause), 0, replica);
}

result<bool> node::resume(std::int32_t replica) const {
  return order(static_cast<std::uint8_t>(scheduler_order::verb::resume), 0, replica);
}

result<bool> node::set_depth(std::int32_t depth, std::int32_t replica) const {
  return order(static_cast<std::uint8_t>(scheduler_order::verb::set_depth), depth, replica);
}

result<bool> node::kill(const std::string& actor_name, std::int32_t replica) const {
  return ask_and_wait<bool>(running_->system(),
                            running_->replicas.at(static_cast<std::size_t>(replica))->supervisor,
                            control_timeout, kill_atom::value, actor_name);
}

void node::stop() {
  running_->stop();
}

}  // namespace deepinfer
