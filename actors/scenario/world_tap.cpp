// Message faults between a worker and its gate.
#include <algorithm>
#include <optional>

#include "actors/scenario/world_player.hpp"

namespace deepinfer {

namespace {

struct tap_state {
  static inline const char* name = "tap";

  device_gate_actor gate;
  std::vector<deliver_verb>* deliveries = nullptr;
  struct swapped {
    submit_step step;
    caf::typed_response_promise<step_done> promise;
  };
  std::optional<swapped> held;  ///< until the next of its kind has passed
};

using pointer = device_gate_actor::stateful_pointer<tap_state>;

std::optional<deliver_verb> take_delivery(tap_state& state, scenario_message kind, step_id step) {
  auto& all = *state.deliveries;
  const auto found = std::find_if(all.begin(), all.end(), [&](const deliver_verb& it) {
    return it.message == kind && (!it.step || *it.step == static_cast<std::int64_t>(step.value));
  });
  if (found == all.end()) return std::nullopt;
  auto out = *found;
  all.erase(found);
  return out;
}

void pass_done(pointer self, caf::typed_response_promise<step_done> promise,
               const step_done& done) {
  const auto how = take_delivery(self->state, scenario_message::step_done, done.step);
  promise.deliver(done);
  // The gate's word once more, as a completion that was told twice: tickets are in launch order.
  for (std::int32_t i = 1; how && i < how->copies; ++i)
    tell(self, self->state.gate, fired_atom::value, ticket{done.step.value}, done.status,
         done.times);
}

void pass(pointer self, const submit_step& step, caf::typed_response_promise<step_done> promise) {
  ask(self, self->state.gate, std::chrono::hours{1}, step)
    .then([self, promise](const step_done& done) { pass_done(self, promise, done); },
          [promise](caf::error& reason) mutable { promise.deliver(std::move(reason)); });
}

caf::typed_response_promise<step_done> submit(pointer self, const submit_step& step) {
  auto& state = self->state;
  auto promise = self->make_response_promise<step_done>();
  const auto how = take_delivery(state, scenario_message::submit_step, step.work->step());
  if (how && how->swap) {
    state.held = tap_state::swapped{step, promise};
    return promise;
  }
  pass(self, step, promise);
  if (state.held) {
    const auto held = *std::exchange(state.held, std::nullopt);
    pass(self, held.step, held.promise);
  }
  return promise;
}

device_gate_actor::behavior_type tap(pointer self, device_gate_actor gate,
                                     std::vector<deliver_verb>* deliveries) {
  self->state.gate = std::move(gate);
  self->state.deliveries = deliveries;
  self->link_to(self->state.gate);
  return {
    [self](const submit_step& step) { return submit(self, step); },
    [self](fired_atom, ticket id, device_status status, const phase_times& times) {
      tell(self, self->state.gate, fired_atom::value, id, status, times);
    },
    [self](recover_atom, step_id step) {
      auto promise = self->make_response_promise<step_done>();
      ask(self, self->state.gate, std::chrono::hours{1}, recover_atom::value, step)
        .then([promise](const step_done& done) mutable { promise.deliver(done); },
              [promise](caf::error& reason) mutable { promise.deliver(std::move(reason)); });
      return promise;
    },
    [self](gate_atom, step_id step) { tell(self, self->state.gate, gate_atom::value, step); },
    [self](wake_atom) { tell(self, self->state.gate, wake_atom::value); },
  };
}

}  // namespace

device_gate_actor tap_gate(caf::actor_system& system, const device_gate_actor& gate,
                           std::vector<deliver_verb>* deliveries) {
  return system.spawn(tap, gate, deliveries);
}

}  // namespace deepinfer
