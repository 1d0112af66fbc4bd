#include "actors/scheduler.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "actors/client_state.hpp"
#include "runtime/base/log.hpp"
#include "runtime/device/device.hpp"

namespace deepinfer {
namespace {

using pointer = scheduler_actor::stateful_pointer<scheduler_state>;

/// Turns that may be put behind messages that keep arriving.
constexpr std::int32_t most_postponed = 8;

/// Messages of one plan: plan, submit_step, fired, step_done, result.
constexpr std::uint64_t messages_per_plan = 5;

void turn(pointer self);

const char* kind_text(step_kind kind) {
  switch (kind) {
  case step_kind::empty: return "empty";
  case step_kind::prefill: return "prefill";
  case step_kind::decode: return "decode";
  case step_kind::mixed: return "mixed";
  }
  return "?";
}

step_trace& trace_of(scheduler_state& state, step_id step) {
  return state.open_traces[step.value % state.open_traces.size()];
}

std::shared_ptr<step_plan> unused_plan(scheduler_state& state) {
  for (auto& plan : state.plans)
    if (plan.use_count() == 1) return plan;
  return state.plans.emplace_back(std::make_shared<step_plan>());
}

void note_launch(scheduler_state& state, const step_plan& plan) {
  auto& it = trace_of(state, plan.step);
  it = {};
  it.step = plan.step;
  it.rank = state.core->config().rank;
  it.kind = kind_text(plan.kind);
  it.rows = plan.rows();
  it.tokens = plan.total_width;
  for (const auto source : plan.sources) it.carried_rows += source == from_fresh ? 0 : 1;
  it.inflight_steps = state.core->in_flight();
  it.is_after_rest = state.is_resting;
  it.plan_begin_ns = state.work_begin_ns;
  it.plan_end_ns = state.links.clock->now_ns();
  state.accountant.note_host(idle_cause::plan, it.plan_begin_ns, it.plan_end_ns);
  for (const auto& start : plan.starts) {
    const auto* sequence = state.core->find(start.sequence);
    state.started.push_back(
      {start.sequence, static_cast<std::int32_t>(sequence ? sequence->cached_tokens : 0)});
  }
  state.is_resting = false;
  if (state.counted) state.counted->note_launch(plan, it);
}

/// The loop goes on behind what has arrived by then.
void request_turn(pointer self) {
  auto& state = self->state;
  if (std::exchange(state.has_turn, true)) return;
  ++state.messages;
  tell(self, scheduler_actor{self}, turn_atom::value);
}

void open_gate(pointer self, gate_ptr masks) {
  self->state.messages += 2;
  tell(self, self->state.links.worker, std::move(masks));
}

void flush(pointer self) {
  auto& state = self->state;
  state.core->take_outbox(state.outbox);
  auto& box = state.outbox;
  if (state.links.hooks.watch) state.links.hooks.watch->on_outbox(box, *state.core);
  state.messages += std::uint64_t{box.has_leases()} + std::uint64_t{box.has_want()};
  for (auto& gate : box.gates) {
    auto masks = std::make_shared<sample_gate>(std::move(gate));
    // The worker takes masks of steps it knows.
    if (state.held_plan && state.held_plan->step == masks->step)
      state.held_gate = std::move(masks);
    else
      open_gate(self, std::move(masks));
  }
  // What is published must be named before its last reference comes back.
  if (box.has_want()) tell(self, state.links.allocator, std::move(box.want));
  if (state.counted && box.has_leases())
    state.counted->note_leases(box.leases, state.core->newest_settled(),
                               state.links.clock->now_ns());
  if (box.has_leases()) tell(self, state.links.collector, std::move(box.leases));
  for (const auto& [sequence, why] : box.preempted)
    state.preempted.push_back({sequence, why, state.links.clock->now_ns()});
  if (box.has_chunks() || !state.started.empty()) {
    box.chunks.preempted = std::move(state.preempted);
    state.preempted.clear();
    box.chunks.started = std::move(state.started);
    state.started.clear();
    ++state.messages;
    tell(self, state.links.gateway, std::move(box.chunks));
  }
}

/// The device has said something of `step`. Where the loop slept until then the host has waited for
/// the device: once for each step at most, and not at all for one whose result came meanwhile.
void note_wait(scheduler_state& state, step_id step) {
  if (!std::exchange(state.waits_for_device, false)) return;
  state.accountant.note_host_wait();
  if (state.links.hooks.watch) state.links.hooks.watch->on_host_wait(step);
}

/// A step's watchdog ran out. Its rows have ended with an error; what it may touch stays parked and
/// nothing is launched until the device has proved it finished. If it never does, the rank is lost.
void suspect(pointer self, step_id step) {
  auto& links = self->state.links;
  log(severity::error, "step {} was not answered in time: its rows end, its blocks wait",
      step.value);
  self->state.suspects.insert(step);
  if (links.hooks.watch) links.hooks.watch->on_suspect(step);
  tell(self, links.collector, quarantine_atom::value, step);
  ask(self, links.worker, links.answer_timeout, recover_atom::value, step)
    .then(
      [self](step_id proven) {
        log(severity::warning, "step {} has finished after all", proven.value);
        note_wait(self->state, proven);
        self->state.suspects.erase(proven);
        if (self->state.links.hooks.watch) self->state.links.hooks.watch->on_proven(proven);
        tell(self, self->state.links.collector, proven_atom::value, proven);
        turn(self);
      },
      [self](caf::error& reason) { self->quit(std::move(reason)); });
}

/// True: the work takes time on a clock of its own, and a message will say when it has ended.
bool is_busy_for(pointer self, std::chrono::nanoseconds time) {
  if (time.count() <= 0) return false;
  self->state.busy_with = ++self->state.works;
  self->delayed_send(self, time, turn_atom::value, self->state.works);
  return true;
}

void look_in(pointer self, std::int64_t time_ns) {
  self->delayed_send(self, std::chrono::nanoseconds(time_ns), tick_atom::value);
}

/// Worker and gate answer by the gate's watchdog. If they do not, the rank is lost.
void look_for_late(pointer self) {
  auto& state = self->state;
  const auto next_ns = state.due.look(state.links.clock->now_ns());
  if (!next_ns) return;
  if (*next_ns > 0) return look_in(self, *next_ns);
  log(severity::error, "a step has had no result for {} ms: the rank is lost",
      state.due.longest_ns() / 1'000'000);
  self->quit(caf::make_error(caf::sec::request_timeout));
}

void launch(pointer self, std::shared_ptr<step_plan> plan) {
  auto& state = self->state;
  note_launch(state, *plan);
  state.messages += messages_per_plan;
  if (state.links.hooks.watch) state.links.hooks.watch->on_launch(*plan, *state.core);
  if (state.due.expect(state.links.clock->now_ns())) look_in(self, state.due.longest_ns());
  ask_each_step(self, state.links.worker, plan_ptr{std::move(plan)})
    .then(
      [self](const result_ptr& done) {
        self->state.due.note_answer(self->state.links.clock->now_ns());
        note_wait(self->state, done->step);
        self->state.results.push_back(done);
        turn(self);
      },
      [self](caf::error& reason) { self->quit(std::move(reason)); });
  if (state.held_gate) open_gate(self, std::move(state.held_gate));
  flush(self);
}

/// Books a settled step, and notes in its trace what the device waited for since the one before.
void account(scheduler_state& state, step_trace& it) {
  auto& accountant = state.accountant;
  const auto before = accountant.totals();
  accountant.note_host(idle_cause::settle, it.settle_begin_ns, it.settle_end_ns);
  accountant.settle(it.device, it.rows, it.overrun_rows);
  const auto& after = accountant.totals();
  const auto idle = [&](idle_cause cause) {
    const auto i = static_cast<std::size_t>(cause);
    return after.idle_ns[i] - before.idle_ns[i];
  };
  it.idle_plan_ns = idle(idle_cause::plan);
  it.idle_settle_ns = idle(idle_cause::settle);
  it.idle_vote_ns = idle(idle_cause::vote);
  it.idle_transfer_ns = idle(idle_cause::transfer);
  it.exposed_host_ns = after.exposed_host_ns - before.exposed_host_ns;
}

void settle(pointer self, const result_ptr& done) {
  auto& state = self->state;
  auto& it = trace_of(state, done->step);
  it.settle_begin_ns = state.work_begin_ns;
  it.device = done->times;
  if (done->code == errc::deadline_exceeded) suspect(self, done->step);
  const auto emitted = state.core->emitted_tokens();
  const auto overrun = state.core->overrun_rows();
  state.core->settle(*done);
  it.emitted = static_cast<std::int32_t>(state.core->emitted_tokens() - emitted);
  it.parked_blocks = static_cast<std::int32_t>(state.core->deferred_blocks());
  it.settle_end_ns = state.links.clock->now_ns();
  it.overrun_rows = static_cast<std::int32_t>(state.core->overrun_rows() - overrun);
  account(state, it);
  if (state.counted) state.counted->note_settle(*done, it, state.accountant.totals());
  state.trace->add(it);
  if (state.links.hooks.watch) state.links.hooks.watch->on_traced(it);
  if (state.links.hooks.watch) state.links.hooks.watch->on_settle(*done, *state.core);
  flush(self);
}

bool try_launch(pointer self) {
  auto& state = self->state;
  if (!state.suspects.empty() || state.flushes > 0) return false;
  auto plan = unused_plan(state);
  state.work_begin_ns = state.links.clock->now_ns();
  if (!state.core->plan(*plan)) {
    if (!state.core->has_made_room()) return false;
    flush(self);
    return true;
  }
  auto* pace = state.links.hooks.pace;
  if (pace && is_busy_for(self, pace->plan(*plan)))
    state.held_plan = std::move(plan);
  else
    launch(self, std::move(plan));
  return true;
}

bool try_settle(pointer self) {
  auto& state = self->state;
  if (state.results.empty()) return false;
  auto done = std::move(state.results.front());
  state.results.pop_front();
  state.work_begin_ns = state.links.clock->now_ns();
  auto* pace = state.links.hooks.pace;
  if (pace && is_busy_for(self, pace->settle(*done)))
    state.held_result = std::move(done);
  else
    settle(self, done);
  return true;
}

bool has_taken_effect(const scheduler_core& core, scheduler_order::verb what) {
  if (what == scheduler_order::verb::pause) return core.in_flight() == 0;
  return !core.has_work();  // drain
}

void answer_orders(scheduler_state& state) {
  std::erase_if(state.orders, [&](auto& it) {
    if (!has_taken_effect(*state.core, it.order.what)) return false;
    it.promise.deliver(true);
    return true;
  });
}

void rest(scheduler_state& state) {
  const bool has_work = state.core->has_work();
  if (state.counted && !has_work && !state.is_resting)
    state.counted->note_rest(state.core->stats());
  if (!has_work) state.is_resting = true;
  if (state.rest_begin_ns < 0 && !state.core->has_wanted())
    state.rest_begin_ns = state.links.clock->now_ns();
  answer_orders(state);
  state.waits_for_device = state.core->in_flight() > 0 || !state.suspects.empty();
  if (state.links.hooks.watch) state.links.hooks.watch->on_sleep(*state.core);
}

/// Everything that has arrived is applied before the loop goes on: this runs behind it.
void turn(pointer self) {
  auto& state = self->state;
  state.waits_for_device = false;
  while (!state.busy_with) {
    const bool must_wait = state.links.hooks.yields_each_turn || has_more_messages(self);
    if (must_wait) return request_turn(self);
    if (try_launch(self) || try_settle(self)) continue;
    flush(self);
    return rest(state);
  }
}

void take_turn(pointer self) {
  auto& state = self->state;
  state.has_turn = false;
  state.waits_for_device = false;
  if (state.busy_with) return;
  if (has_more_messages(self) && state.postponed < most_postponed) {
    ++state.postponed;
    return request_turn(self);
  }
  state.postponed = 0;
  if (try_launch(self) || try_settle(self)) return turn(self);
  flush(self);
  rest(state);
}

void end_work(pointer self, std::uint64_t work) {
  auto& state = self->state;
  if (state.busy_with != work) return;
  state.busy_with.reset();
  if (state.held_plan) launch(self, std::move(state.held_plan));
  if (state.held_result) settle(self, std::exchange(state.held_result, nullptr));
  turn(self);
}

void end_rest(scheduler_state& state, std::int64_t now_ns) {
  if (state.rest_begin_ns < 0 || !state.core->has_wanted()) return;
  state.accountant.note_no_work(state.rest_begin_ns, now_ns);
  state.rest_begin_ns = -1;
}

void take_requests(pointer self, submit_batch& batch) {
  auto& state = self->state;
  const auto now_ns = state.links.clock->now_ns();
  for (auto& request : batch) state.core->submit(std::move(request), now_ns / 1000);
  end_rest(state, now_ns);
  turn(self);
}

void hold(pointer self, seq_id sequence, bool is_held) {
  self->state.core->hold(sequence, is_held);
  end_rest(self->state, self->state.links.clock->now_ns());
  turn(self);
}

caf::typed_response_promise<bool> obey(pointer self, const scheduler_order& order) {
  auto& state = self->state;
  auto& core = *state.core;
  auto promise = self->make_response_promise<bool>();
  using verb = scheduler_order::verb;
  switch (order.what) {
  case verb::pause: core.pause(); break;
  case verb::resume: core.resume(); break;
  case verb::drain: core.drain(); break;
  case verb::preempt: core.preempt(order.sequence); break;
  case verb::preempt_all: core.preempt_all(); break;
  case verb::abort_all:
    core.abort_all(finish_reason::abort, errc::server_shutdown, "the engine is shutting down");
    break;
  case verb::set_depth:
    // The runner's buffers were made for so many steps in flight.
    if (order.depth < 1 || order.depth > core.config().max_depth) {
      promise.deliver(to_caf({errc::invalid_argument,
                              fmt::format("depth: found {}, expected 1 to {}, the depth the engine "
                                          "was loaded with",
                                          order.depth, core.config().max_depth),
                              "depth"}));
      return promise;
    }
    core.set_depth(order.depth);
    if (state.links.hooks.watch) state.links.hooks.watch->on_depth(core.depth());
    break;
  case verb::set_policy: core.set_policy(order.policy); break;
  case verb::flush_running: core.preempt_all(); break;
  case verb::flush: break;
  }
  if (order.what == verb::flush || order.what == verb::flush_running) {
    flush(self);  // what was published before is flushed with the rest
    ++state.flushes;
    ask(self, state.links.allocator, state.links.answer_timeout, flush_atom::value)
      .then(
        [self, promise](bool done) mutable {
          --self->state.flushes;
          if (self->state.links.hooks.watch) self->state.links.hooks.watch->on_flushed();
          promise.deliver(done);
          turn(self);
        },
        [self](caf::error& reason) { self->quit(std::move(reason)); });
  } else if (order.what == verb::pause || order.what == verb::drain) {
    state.orders.push_back({order, promise});
  } else {
    promise.deliver(true);
  }
  turn(self);
  return promise;
}

node_stats stats_of(scheduler_state& state) {
  const auto core = state.core->stats();
  if (state.counted) state.counted->note_stats(core);
  const auto& bubbles = state.accountant.totals();
  node_stats stats;
  stats.running = core.running + core.retiring;
  stats.queued = core.queued;
  stats.inflight_steps = core.inflight_steps;
  stats.kv_blocks_free = core.credit_blocks;
  stats.slots_free = core.credit_slots;
  stats.steps = core.steps;
  stats.tokens_out = core.emitted_tokens;
  stats.device_busy_ns = bubbles.busy_ns;
  stats.device_span_ns =
    bubbles.span_ns() - bubbles.idle_ns[static_cast<std::size_t>(idle_cause::no_work)];
  const auto idle = [&](idle_cause cause) {
    return bubbles.idle_ns[static_cast<std::size_t>(cause)];
  };
  stats.idle_plan_ns = idle(idle_cause::plan);
  stats.idle_settle_ns = idle(idle_cause::settle);
  stats.idle_vote_ns = idle(idle_cause::vote);
  stats.idle_transfer_ns = idle(idle_cause::transfer);
  stats.exposed_host_ns = bubbles.exposed_host_ns;
  stats.host_waits = static_cast<std::uint64_t>(bubbles.host_waits);
  stats.preemptions = core.preemptions;
  stats.cached_tokens = core.cached_tokens;
  stats.draft_tokens = core.draft_tokens;
  stats.accepted_tokens = core.accepted_tokens;
  stats.overrun_rows = core.overrun_rows;
  stats.step_messages = state.messages;
  return stats;
}

}  // namespace

scheduler_actor::behavior_type scheduler(pointer self, scheduler_config config,
                                         scheduler_links links) {
  auto& state = self->state;
  state.links = std::move(links);
  const auto& with = state.links;
  state.core = std::make_unique<scheduler_core>(
    std::move(config), scheduler_helpers{with.texts, with.grammars, with.sizer.get()});
  if (with.counts) state.counted.emplace(*with.counts, state.core->config());
  state.trace = std::make_unique<trace_ring>(with.trace_steps);
  state.due = answer_deadline(std::chrono::nanoseconds(with.answer_timeout).count());
  state.rest_begin_ns = with.clock->now_ns();
  if (with.hooks.watch) with.hooks.watch->on_start(*state.core, state.accountant);
  // The unit of restart is the rank: if one of its actors dies, all do.
  self->link_to(with.worker);
  self->link_to(with.allocator);
  self->link_to(with.collector);
  return {
    [self](submit_batch& batch) { take_requests(self, batch); },
    [self](const kv_grant& granted) {
      self->state.core->grant(granted);
      turn(self);
    },
    [self](abort_atom, seq_id sequence) {
      self->state.core->abort(sequence, finish_reason::abort, errc::cancelled, "cancelled");
      turn(self);
    },
    [self](hold_atom, seq_id sequence, bool is_held) { hold(self, sequence, is_held); },
    [self](const scheduler_order& order) { return obey(self, order); },
    [self](wake_atom) { turn(self); },
    [self](turn_atom) { take_turn(self); },
    [self](turn_atom, std::uint64_t work) { end_work(self, work); },
    [self](tick_atom) { look_for_late(self); },
    [self](stats_atom) { return stats_of(self->state); },
    [self](trace_atom, std::uint32_t steps) { return self->state.trace->newest(steps); },
  };
}

}  // namespace deepinfer
