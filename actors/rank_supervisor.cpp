#include "actors/rank_supervisor.hpp"

#include <fmt/format.h>

#include "actors/gather.hpp"
#include "actors/kv_allocator.hpp"
#include "actors/release_collector.hpp"
#include "actors/scheduler.hpp"
#include "actors/worker.hpp"
#include "runtime/base/log.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/step_launch.hpp"

namespace deepinfer {
namespace {

using pointer = supervisor_actor::stateful_pointer<rank_supervisor_state>;

constexpr std::chrono::seconds stats_timeout{5};

/// Runs nothing: its completion proves that everything launched before it has ended.
class drain_work final : public device_work {
public:
  step_id step() const override { return {}; }
  device_status run(step_phase, const stream_ref&) override { return {}; }
};

/// The supervisor as the target of device completions, beside the gates' doors.
struct supervisor_door : device_door {
  supervisor_actor supervisor;
};

void on_drained(void* user, ticket id, device_status status, const phase_times& times) {
  tell_from_outside(static_cast<supervisor_door*>(user)->supervisor, fired_atom::value, id, status,
                    times);
}

/// Actors of the rank, for what is done to each of them.
template <class Do>
void for_each_part(const rank_supervisor_state::parts& it, Do&& act) {
  act(it.scheduler, scheduler_state::name);
  act(it.worker, worker_state::name);
  act(it.collector, release_collector_state::name);
  act(it.allocator, kv_allocator_state::name);
  act(it.gate, device_gate_state::name);
}

void start(pointer self) {
  auto& state = self->state;
  auto& system = self->system();
  const auto& config = state.config;
  if (std::exchange(state.is_dead, false) && config.counts)
    config.counts->add(metric::dead_ranks, -1);
  state.doors->push_back(std::make_unique<device_door>());
  auto* door = state.doors->back().get();

  rank_supervisor_state::parts it;
  it.gate = system.spawn(device_gate, device_gate_config{config.on, door, config.watchdog});
  door->gate = it.gate;
  if (config.hooks.tap_gate) it.gate = config.hooks.tap_gate(system, it.gate);
  kv_pool_config pool;
  pool.rank = config.scheduler.rank;
  pool.num_kv_blocks = config.scheduler.num_kv_blocks;
  pool.state_slots = config.scheduler.state_slots;
  pool.block_size = config.scheduler.prefix_cache ? config.scheduler.block_size : 0;
  pool.host_blocks = config.runner->config().host_blocks;
  it.allocator = system.spawn(kv_allocator, pool, config.hooks.watch, config.counts);
  it.collector = system.spawn(release_collector, config.scheduler.rank, it.allocator);
  it.worker = system.spawn(worker, worker_links{it.gate, config.runner, config.watchdog});
  scheduler_links links;
  links.worker = it.worker;
  links.allocator = it.allocator;
  links.collector = it.collector;
  links.gateway = state.gateway;
  links.clock = config.on;
  links.texts = config.texts;
  links.grammars = config.hooks.grammars ? config.hooks.grammars : config.grammars;
  links.sizer = config.sizer;
  links.hooks = config.hooks;
  links.counts = config.counts;
  links.trace_steps = config.trace_steps;
  links.answer_timeout = 4 * config.watchdog;
  it.scheduler = system.spawn(scheduler, config.scheduler, links);
  for_each_part(it, [self](const auto& part, const char*) { self->monitor(part); });
  state.alive = 5;
  state.running = std::move(it);
  tell(self, state.gateway, rank_up_atom::value, state.running->scheduler);
}

void give_up(pointer self, const std::string& why) {
  log(severity::error, "rank {} stays down: {}", self->state.config.scheduler.rank.value, why);
  if (!std::exchange(self->state.is_dead, true) && self->state.config.counts)
    self->state.config.counts->add(metric::dead_ranks);
  tell(self, self->state.gateway, rank_down_atom::value, why, true);
}

/// Everything of the rank is gone: wait for the device, then start again.
void drain(pointer self) {
  auto& state = self->state;
  if (state.is_stopping) {
    self->quit();
    return;
  }
  if (++state.restarts > static_cast<std::uint64_t>(state.config.max_restarts))
    return give_up(self, fmt::format("it died {} times", state.restarts));
  auto door = std::make_unique<supervisor_door>();
  door->supervisor = supervisor_actor{self};
  const auto launched = launch_step(*state.config.on, std::make_shared<drain_work>(),
                                    ticket{++state.drain_ticket}, on_drained, door.get());
  state.doors->push_back(std::move(door));
  if (!launched) return give_up(self, launched.error().message);
  self->delayed_send(self, 4 * state.config.watchdog, wake_atom::value, state.drain_ticket);
}

void on_down(pointer self, const caf::down_msg& down) {
  auto& state = self->state;
  if (state.alive == 0) return;
  if (state.running) {
    // The first one: the links take the others along; a rank half alive would be worse than none.
    const auto parts = *state.running;
    state.running.reset();
    if (!state.is_stopping)
      tell(self, state.gateway, rank_down_atom::value, caf::to_string(down.reason), false);
    for_each_part(parts, [self](const auto& part, const char*) {
      self->send_exit(part, caf::exit_reason::kill);
    });
  }
  if (--state.alive == 0) drain(self);
}

bool kill_part(pointer self, const std::string& name) {
  if (!self->state.running) return false;
  bool was_found = false;
  for_each_part(*self->state.running, [&](const auto& part, const char* part_name) {
    if (name != part_name) return;
    was_found = true;
    self->send_exit(part, caf::exit_reason::kill);
  });
  return was_found;
}

/// Asks three actors and answers when all have; one that is gone makes the answer an error.
caf::typed_response_promise<node_stats> gather_stats(pointer self) {
  auto promise = self->make_response_promise<node_stats>();
  if (!self->state.running) {
    node_stats down;
    down.rank_restarts = self->state.restarts;
    promise.deliver(down);
    return promise;
  }
  node_stats sum;
  sum.rank_restarts = self->state.restarts;
  gathering<node_stats, pointer> all(self, stats_timeout,
                                     [promise, sum](gathered<node_stats>& got) mutable {
                                       if (!got.failures.empty()) {
                                         promise.deliver(std::move(got.failures.front()));
                                         return;
                                       }
                                       for (const auto& part : got.answers) add(sum, part);
                                       promise.deliver(sum);
                                     });
  const auto& parts = *self->state.running;
  all.ask(parts.scheduler, stats_atom::value);
  all.ask(parts.allocator, stats_atom::value);
  all.ask(parts.collector, stats_atom::value);
  return promise;
}

/// What an operator has set holds for the next life of the rank, too.
void remember(rank_config& config, const scheduler_order& order) {
  if (order.what == scheduler_order::verb::set_depth) config.scheduler.depth = order.depth;
  if (order.what == scheduler_order::verb::set_policy) config.scheduler.policy = order.policy;
}

}  // namespace

void add(node_stats& sum, const node_stats& more) {
  sum.running += more.running;
  sum.queued += more.queued;
  sum.inflight_steps += more.inflight_steps;
  sum.kv_blocks_total += more.kv_blocks_total;
  sum.kv_blocks_free += more.kv_blocks_free;
  sum.kv_blocks_cached += more.kv_blocks_cached;
  sum.idle_plan_ns += more.idle_plan_ns;
  sum.idle_settle_ns += more.idle_settle_ns;
  sum.idle_vote_ns += more.idle_vote_ns;
  sum.idle_transfer_ns += more.idle_transfer_ns;
  sum.exposed_host_ns += more.exposed_host_ns;
  sum.host_waits += more.host_waits;
  sum.preemptions += more.preemptions;
  sum.cached_tokens += more.cached_tokens;
  sum.prefix_host_hits += more.prefix_host_hits;
  sum.draft_tokens += more.draft_tokens;
  sum.accepted_tokens += more.accepted_tokens;
  sum.overrun_rows += more.overrun_rows;
  sum.slots_total += more.slots_total;
  sum.slots_free += more.slots_free;
  sum.deferred_blocks += more.deferred_blocks;
  sum.steps += more.steps;
  sum.tokens_out += more.tokens_out;
  sum.device_busy_ns += more.device_busy_ns;
  sum.device_span_ns += more.device_span_ns;
  sum.step_messages += more.step_messages;
  sum.rank_restarts += more.rank_restarts;
}

supervisor_actor::behavior_type rank_supervisor(pointer self, rank_config config,
                                                rank_client_actor gateway, device_doors* doors) {
  auto& state = self->state;
  state.config = std::move(config);
  state.gateway = std::move(gateway);
  state.doors = doors;
  self->set_down_handler([self](caf::down_msg& down) { on_down(self, down); });
  start(self);
  return {
    [self](fired_atom, ticket id, device_status status, const phase_times&) {
      auto& it = self->state;
      if (id.value != it.drain_ticket || it.running || it.is_stopping) return;
      if (status.is_sticky) return give_up(self, "the device is lost");
      it.config.runner->reset();
      log(severity::warning, "rank {} starts again", it.config.scheduler.rank.value);
      start(self);
    },
    [self](wake_atom, std::uint64_t drain_ticket) {
      auto& it = self->state;
      if (drain_ticket != it.drain_ticket || it.running || it.is_stopping) return;
      give_up(self, "the device does not come to rest");
    },
    [self](kill_atom, const std::string& name) { return kill_part(self, name); },
    [self](stats_atom) { return gather_stats(self); },
    [self](trace_atom, std::uint32_t steps) {
      auto promise = self->make_response_promise<std::vector<step_trace>>();
      if (!self->state.running) {
        promise.deliver(std::vector<step_trace>{});
        return promise;
      }
      ask(self, self->state.running->scheduler, stats_timeout, trace_atom::value, steps)
        .then(
          [promise](std::vector<step_trace>& trace) mutable { promise.deliver(std::move(trace)); },
          [promise](caf::error& reason) mutable { promise.deliver(std::move(reason)); });
      return promise;
    },
    [self](const scheduler_order& order) {
      auto promise = self->make_response_promise<bool>();
      if (!self->state.running) {
        promise.deliver(false);
        return promise;
      }
      ask(self, self->state.running->scheduler, std::chrono::hours{1}, order)
        .then(
          [self, promise, order](bool done) mutable {
            if (done) remember(self->state.config, order);
            promise.deliver(done);
          },
          [promise](caf::error& reason) mutable { promise.deliver(std::move(reason)); });
      return promise;
    },
    [self](stop_atom) {
      auto& it = self->state;
      it.is_stopping = true;
      // Not before the last actor of the rank has gone: they use the device.
      if (it.running)
        self->send_exit(it.running->scheduler, caf::exit_reason::user_shutdown);
      else if (it.alive == 0)
        self->quit();
    },
  };
}

}  // namespace deepinfer
