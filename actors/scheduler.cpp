#include "actors/scheduler.hpp"

#include "runtime/base/log.hpp"
#include "runtime/device/device.hpp"

namespace deepinfer {
namespace {

using pointer = scheduler_actor::stateful_pointer<scheduler_state>;

void on_result(pointer self, const result_ptr& done);

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

void note_launch(scheduler_state& state, const step_plan& plan, std::int64_t begin_ns,
                 std::int64_t end_ns) {
  auto& it = trace_of(state, plan.step);
  it = {};
  it.step = plan.step;
  it.rank = state.core->config().rank;
  it.kind = kind_text(plan.kind);
  it.rows = plan.rows();
  for (const auto width : plan.widths) it.tokens += width;
  for (const auto source : plan.sources) it.carried_rows += source == from_fresh ? 0 : 1;
  it.inflight_steps = state.core->in_flight();
  it.is_after_rest = state.is_resting;
  it.plan_begin_ns = begin_ns;
  it.plan_end_ns = end_ns;
  for (const auto& start : plan.starts) state.started.push_back(start.sequence);
  state.is_resting = false;
}

/// Messages of one plan: plan, submit_step, fired, step_done, result.
constexpr std::uint64_t messages_per_plan = 5;

void flush(pointer self) {
  auto& state = self->state;
  state.core->take_outbox(state.outbox);
  auto& box = state.outbox;
  state.messages += std::uint64_t{box.has_leases()} + std::uint64_t{box.has_want()};
  if (box.has_leases()) tell(self, state.links.collector, std::move(box.leases));
  if (box.has_want()) tell(self, state.links.allocator, box.want);
  if (box.has_chunks() || !state.started.empty()) {
    box.chunks.started = std::move(state.started);
    state.started.clear();
    ++state.messages;
    tell(self, state.links.gateway, std::move(box.chunks));
  }
}

/// Launches what can be launched, then sends what has gathered.
void turn(pointer self) {
  auto& state = self->state;
  while (state.suspects.empty()) {
    auto plan = unused_plan(state);
    const auto begin_ns = state.links.clock->now_ns();
    if (!state.core->plan(*plan)) break;
    note_launch(state, *plan, begin_ns, state.links.clock->now_ns());
    state.messages += messages_per_plan;
    ask(self, state.links.worker, state.links.answer_timeout, plan_ptr{std::move(plan)})
      .then([self](const result_ptr& done) { on_result(self, done); },
            [self](caf::error& reason) { self->quit(std::move(reason)); });
  }
  flush(self);
  if (!state.core->has_work()) state.is_resting = true;
}

/// A step's watchdog ran out. Its rows have ended with an error; what it may touch stays parked and
/// nothing is launched until the device has proved it finished. If it never does, the rank is lost.
void suspect(pointer self, step_id step) {
  auto& links = self->state.links;
  log(severity::error, "step {} was not answered in time: its rows end, its blocks wait",
      step.value);
  self->state.suspects.insert(step);
  tell(self, links.collector, quarantine_atom::value, step);
  ask(self, links.worker, links.answer_timeout, recover_atom::value, step)
    .then(
      [self](step_id proven) {
        log(severity::warning, "step {} has finished after all", proven.value);
        self->state.suspects.erase(proven);
        tell(self, self->state.links.collector, proven_atom::value, proven);
        turn(self);
      },
      [self](caf::error& reason) { self->quit(std::move(reason)); });
}

void on_result(pointer self, const result_ptr& done) {
  auto& state = self->state;
  auto& it = trace_of(state, done->step);
  it.settle_begin_ns = state.links.clock->now_ns();
  it.device = done->times;
  if (done->code == errc::deadline_exceeded) suspect(self, done->step);
  const auto emitted = state.core->emitted_tokens();
  state.core->settle(*done);
  it.emitted = static_cast<std::int32_t>(state.core->emitted_tokens() - emitted);
  it.parked_blocks = static_cast<std::int32_t>(state.core->deferred_blocks());
  it.settle_end_ns = state.links.clock->now_ns();
  state.trace->add(it);
  state.usage.add(it);
  turn(self);
}

node_stats stats_of(const scheduler_state& state) {
  const auto core = state.core->stats();
  node_stats stats;
  stats.running = core.running + core.retiring;
  stats.queued = core.queued;
  stats.inflight_steps = core.inflight_steps;
  stats.kv_blocks_free = core.credit_blocks;
  stats.slots_free = core.credit_slots;
  stats.steps = core.steps;
  stats.tokens_out = core.emitted_tokens;
  stats.device_busy_ns = state.usage.busy_ns();
  stats.device_span_ns = state.usage.span_ns();
  stats.step_messages = state.messages;
  return stats;
}

}  // namespace

scheduler_actor::behavior_type scheduler(pointer self, scheduler_config config,
                                         scheduler_links links) {
  auto& state = self->state;
  state.links = std::move(links);
  state.core = std::make_unique<scheduler_core>(std::move(config), state.links.texts);
  state.trace = std::make_unique<trace_ring>(state.links.trace_steps);
  // The unit of restart is the rank: if one of its actors dies, all do.
  self->link_to(state.links.worker);
  self->link_to(state.links.allocator);
  self->link_to(state.links.collector);
  return {
    [self](submit_batch& batch) {
      const auto now_us = self->state.links.clock->now_ns() / 1000;
      for (auto& request : batch) self->state.core->submit(std::move(request), now_us);
      turn(self);
    },
    [self](const kv_grant& granted) {
      self->state.core->grant(granted);
      turn(self);
    },
    [self](abort_atom, seq_id sequence) {
      self->state.core->abort(sequence, finish_reason::abort, errc::cancelled, "cancelled");
      turn(self);
    },
    [self](stats_atom) { return stats_of(self->state); },
    [self](trace_atom, std::uint32_t steps) { return self->state.trace->newest(steps); },
  };
}

}  // namespace deepinfer
