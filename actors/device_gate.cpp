#include "actors/device_gate.hpp"

#include "runtime/base/log.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/step_launch.hpp"

namespace deepinfer {
namespace {

using pointer = device_gate_actor::stateful_pointer<device_gate_state>;

/// Runs on a device thread: the only way in.
void on_completion(void* user, ticket id, device_status status, const phase_times& times) {
  tell_from_outside(static_cast<const device_door*>(user)->gate, fired_atom::value, id, status,
                    times);
}

/// One look at a time: a timer for each step would stay until it has come.
void look_again(pointer self) {
  if (std::exchange(self->state.looks_for_late, true)) return;
  self->delayed_send(self, self->state.config.watchdog / 4, wake_atom::value);
}

void open_gate(pointer self, step_id step);

/// The step whose turn it is.
void put_on_device(pointer self, const submit_step& step,
                   caf::typed_response_promise<step_done> promise) {
  auto& state = self->state;
  const ticket id{++state.last_ticket};
  const auto which = step.work->step();
  const auto refuse = [&](const error& why) {
    // Nothing was enqueued: a failed step, as if its first phase had failed.
    promise.deliver(step_done{which, {why.code, false}, {}});
  };
  if (step.work->is_gated()) {
    const auto held =
      launch_gated_step(*state.config.on, step.work, id, on_completion, state.config.door);
    if (!held) return refuse(held.error());
    state.held.emplace(which, *held);
  } else if (const auto launched =
               launch_step(*state.config.on, step.work, id, on_completion, state.config.door);
             !launched) {
    return refuse(launched.error());
  }
  state.launched.add(id, promise);
  look_again(self);
  state.steps.emplace(id, which);
  state.dog->open(id, state.config.on->now_ns());
  if (state.opened.erase(which) > 0) open_gate(self, which);
}

caf::typed_response_promise<step_done> launch(pointer self, const submit_step& step) {
  auto& state = self->state;
  auto promise = self->make_response_promise<step_done>();
  const auto number = step.work->step().value;
  if (state.next_step == 0) state.next_step = number;
  if (number != state.next_step) {
    state.early.emplace(number, device_gate_state::early_step{step, promise});
    return promise;
  }
  put_on_device(self, step, promise);
  ++state.next_step;
  while (!state.early.empty() && state.early.begin()->first == state.next_step) {
    const auto node = state.early.extract(state.early.begin());
    put_on_device(self, node.mapped().step, node.mapped().promise);
    ++state.next_step;
  }
  return promise;
}

void open_gate(pointer self, step_id step) {
  auto& state = self->state;
  const auto found = state.held.find(step);
  if (found == state.held.end()) {
    if (step.value >= state.next_step) state.opened.insert(step);
    return;
  }
  if (const auto finished = finish_step(found->second); !finished) abandon_step(found->second);
  state.held.erase(found);
}

void fire(pointer self, ticket id, device_status status, const phase_times& times) {
  auto& state = self->state;
  const auto settled = state.dog->settle(id, status);
  if (settled.verdict == ticket_verdict::on_time) {
    const auto step = state.steps.extract(id);
    state.launched.settle(id, {step.mapped(), status, times});
  }
  for (const auto proven : settled.proven) {
    const auto step = state.steps.extract(proven);
    const bool is_own = proven == id;
    state.recovering.settle(
      proven, {step.mapped(), is_own ? status : device_status{}, is_own ? times : phase_times{}});
  }
}

void look_for_late(pointer self) {
  auto& state = self->state;
  state.looks_for_late = false;
  for (const auto id : state.dog->expire(state.config.on->now_ns())) {
    log(severity::error, "device {}: step {} has not ended after {} ms", state.config.on->name(),
        state.steps.at(id).value,
        std::chrono::duration_cast<std::chrono::milliseconds>(state.config.watchdog).count());
    state.launched.fail(id, caf::make_error(caf::sec::request_timeout));
  }
  if (!state.steps.empty()) look_again(self);
}

caf::typed_response_promise<step_done> recover(pointer self, step_id step) {
  auto promise = self->make_response_promise<step_done>();
  for (const auto& [id, launched] : self->state.steps) {
    if (launched != step) continue;
    self->state.recovering.add(id, promise);
    return promise;
  }
  promise.deliver(step_done{step, {}, {}});  // it has been proven in the meantime
  return promise;
}

}  // namespace

device_gate_state::~device_gate_state() {
  for (const auto& [step, held_one] : held) abandon_step(held_one);
}

device_gate_actor::behavior_type device_gate(pointer self, device_gate_config config) {
  self->state.config = config;
  self->state.dog.emplace(std::chrono::nanoseconds(config.watchdog).count());
  return {
    [self](const submit_step& step) { return launch(self, step); },
    [self](fired_atom, ticket id, device_status status, const phase_times& times) {
      fire(self, id, status, times);
    },
    [self](recover_atom, step_id step) { return recover(self, step); },
    [self](gate_atom, step_id step) { open_gate(self, step); },
    [self](wake_atom) { look_for_late(self); },
  };
}

}  // namespace deepinfer
