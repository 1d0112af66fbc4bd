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

void look_again(pointer self) {
  self->delayed_send(self, self->state.config.watchdog / 4, wake_atom::value);
}

caf::typed_response_promise<step_done> launch(pointer self, const submit_step& step) {
  auto& state = self->state;
  const ticket id{++state.last_ticket};
  auto promise = self->make_response_promise<step_done>();
  const auto launched =
    launch_step(*state.config.on, step.work, id, on_completion, state.config.door);
  if (!launched) {
    // Nothing was enqueued: a failed step, as if its first phase had failed.
    promise.deliver(step_done{step.work->step(), {launched.error().code, false}, {}});
    return promise;
  }
  state.launched.add(id, promise);
  if (state.steps.empty()) look_again(self);
  state.steps.emplace(id, step.work->step());
  state.dog->open(id, state.config.on->now_ns());
  return promise;
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

device_gate_actor::behavior_type device_gate(pointer self, device_gate_config config) {
  self->state.config = config;
  self->state.dog.emplace(std::chrono::nanoseconds(config.watchdog).count());
  return {
    [self](const submit_step& step) { return launch(self, step); },
    [self](fired_atom, ticket id, device_status status, const phase_times& times) {
      fire(self, id, status, times);
    },
    [self](recover_atom, step_id step) { return recover(self, step); },
    [self](wake_atom) { look_for_late(self); },
  };
}

}  // namespace deepinfer
