#include "actors/worker.hpp"

#include <fmt/format.h>

#include "runtime/base/log.hpp"

namespace deepinfer {
namespace {

using pointer = worker_actor::stateful_pointer<worker_state>;

result_ptr unused_result(worker_state& state) {
  for (auto& it : state.results)
    if (it.use_count() == 1) return it;
  return state.results.emplace_back(std::make_shared<step_result>());
}

/// A failed step is a result as well: its rows, and why.
void fill_failure(step_result& out, const step_plan& plan, errc code, const char* what) {
  out.clear();
  out.code = code;
  out.what = what;
  out.sequences = plan.sequences;
  out.epochs = plan.epochs;
  out.token_begin.assign(plan.sequences.size() + 1, 0);
}

/// Answers the scheduler for every step whose turn it is, oldest first.
void report(pointer self) {
  auto& state = self->state;
  while (auto* oldest = state.ring->reportable()) {
    auto out = unused_result(state);
    if (oldest->stage == worker_step_stage::overdue) {
      fill_failure(*out, *oldest->plan, errc::deadline_exceeded, "");
    } else if (oldest->status.code != errc::ok) {
      fill_failure(*out, *oldest->plan, oldest->status.code, oldest->status.what);
    } else {
      state.links.runner->collect(*oldest->work, *out);
    }
    out->step = oldest->step;
    out->times = oldest->times;
    const ticket asked{oldest->step.value};
    state.ring->report(*oldest);
    state.waiting.settle(asked, out);
  }
}

void on_done(pointer self, const step_done& done, std::uint64_t generation) {
  if (done.status.is_sticky) {
    log(severity::error, "step {}: the device is lost ({})", done.step.value,
        name_of(done.status.code));
    self->quit(caf::make_error(caf::sec::runtime_error, "the device is lost"));
    return;
  }
  self->state.ring->complete(done.step, generation, done.status, done.times);
  report(self);
}

void launch(pointer self, const plan_ptr& plan) {
  auto& state = self->state;
  auto& opened = state.ring->open(plan);
  opened.work = state.links.runner->stage(plan);
  // The gate answers by its watchdog; against a gate that does not the scheduler has its deadline.
  ask_each_step(self, state.links.gate, submit_step{opened.work})
    .then([self, generation =
                   opened.generation](const step_done& done) { on_done(self, done, generation); },
          [self, step = opened.step, generation = opened.generation](caf::error& reason) {
            // Only the watchdog's word is a time-out. A gate that has gone takes the rank with it,
            // and the requests' error is the rank's, not the step's.
            if (reason != caf::sec::request_timeout) return self->quit(std::move(reason));
            if (self->state.ring->expire(step, generation)) self->state.overdue[step] = generation;
            report(self);
          });
}

/// A step that was given up in the meantime needs its masks no more, but the device still holds it.
void open_gate(pointer self, const gate_ptr& masks) {
  auto& state = self->state;
  if (auto* step = state.ring->find(masks->step); step && step->work->is_gated()) {
    state.links.runner->set_masks(*step->work, masks);
    tell(self, state.links.gate, gate_atom::value, masks->step);
  }
}

caf::typed_response_promise<step_id> recover(pointer self, step_id step) {
  auto promise = self->make_response_promise<step_id>();
  auto& links = self->state.links;
  ask(self, links.gate, links.watchdog, recover_atom::value, step)
    .then(
      [self, promise, step](const step_done& done) mutable {
        if (done.status.is_sticky) return self->quit(caf::make_error(caf::sec::runtime_error));
        auto& state = self->state;
        if (const auto found = state.overdue.extract(step); !found.empty())
          state.ring->complete(step, found.mapped(), done.status, done.times);
        promise.deliver(step);
      },
      [self, step](caf::error&) {
        log(severity::error, "step {} hangs: the rank is lost", step.value);
        self->quit(caf::make_error(caf::sec::runtime_error, "the device hangs"));
      });
  return promise;
}

}  // namespace

worker_actor::behavior_type worker(pointer self, worker_links links) {
  auto& state = self->state;
  state.links = std::move(links);
  state.ring.emplace(state.links.runner->config().depth);
  self->link_to(state.links.gate);
  return {
    [self](const plan_ptr& plan) {
      auto promise = self->make_response_promise<result_ptr>();
      self->state.waiting.add(ticket{plan->step.value}, promise);
      launch(self, plan);
      return promise;
    },
    [self](const gate_ptr& masks) { open_gate(self, masks); },
    [self](recover_atom, step_id step) { return recover(self, step); },
  };
}

}  // namespace deepinfer
