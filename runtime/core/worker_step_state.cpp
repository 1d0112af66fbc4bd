#include "runtime/core/worker_step_state.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/check.hpp"
#include "runtime/core/capacity.hpp"
#include "runtime/core/mutant.hpp"

namespace deepinfer {

worker_step_ring::worker_step_ring(std::int32_t depth) {
  DI_CHECK(1 <= depth && depth <= depth_limit, "depth {}, at most {}", depth, depth_limit);
  ring_.resize(static_cast<std::size_t>(depth) + 1);
  for (std::size_t i = 0; i < ring_.size(); ++i) ring_[i].staging = static_cast<std::int32_t>(i);
}

bool worker_step_ring::can_open() const {
  return opened_ - reported_ + 1 < ring_.size() &&
         place_of(opened_ + 1).stage == worker_step_stage::vacant;
}

worker_step_state& worker_step_ring::open(std::shared_ptr<const step_plan> plan) {
  DI_CHECK(plan, "a step without a plan");
  DI_CHECK(plan->step.value == opened_ + 1, "step {} launched after step {}", plan->step.value,
           opened_);
  DI_CHECK(in_flight() + 1 < static_cast<std::int32_t>(ring_.size()),
           "step {} launched with {} in flight", plan->step.value, in_flight());
  auto& state = place_of(plan->step.value);
  DI_CHECK(state.stage == worker_step_stage::vacant, "staging slot {} still belongs to step {}",
           state.staging, state.step.value);
  state.stage = worker_step_stage::launched;
  state.step = plan->step;
  ++state.generation;
  state.is_reported = false;
  state.plan = std::move(plan);
  state.status = {};
  state.times = {};
  ++opened_;
  return state;
}

worker_step_state* worker_step_ring::find(step_id step) {
  auto& place = place_of(step.value);
  return place.stage != worker_step_stage::vacant && place.step == step ? &place : nullptr;
}

completion_kind worker_step_ring::complete(step_id step, std::uint64_t generation,
                                           const device_status& status, const phase_times& times) {
  auto& state = place_of(step.value);
  // 22: who used the place before is not told from who uses it now.
  const bool is_other = state.step != step || state.generation != generation;
  if (is_other && !mutant(22)) return completion_kind::unknown;
  if (state.stage == worker_step_stage::launched) {
    state.stage = worker_step_stage::finished;
    state.status = status;
    state.times = times;
    return completion_kind::in_time;
  }
  if (state.stage != worker_step_stage::overdue) return completion_kind::unknown;
  if (state.is_reported) {
    vacate(state);
  } else {  // it is going to be reported as what it now is: too late, but finished
    state.stage = worker_step_stage::finished;
    state.status = {errc::device_failed, status.is_sticky};
  }
  return completion_kind::proof;
}

bool worker_step_ring::expire(step_id step, std::uint64_t generation) {
  auto& state = place_of(step.value);
  if (state.step != step || state.generation != generation) return false;
  if (state.stage != worker_step_stage::launched) return false;
  state.stage = worker_step_stage::overdue;
  state.status = {errc::device_failed, false};
  return true;
}

worker_step_state* worker_step_ring::reportable() {
  if (reported_ == opened_) return nullptr;
  auto& state = place_of(reported_ + 1);
  return state.stage == worker_step_stage::launched ? nullptr : &state;
}

void worker_step_ring::report(worker_step_state& state) {
  DI_CHECK(&state == reportable(), "step {} reported, the oldest is {}", state.step.value,
           reported_ + 1);
  ++reported_;
  state.is_reported = true;
  if (state.stage == worker_step_stage::finished) vacate(state);
}

void worker_step_ring::vacate(worker_step_state& state) {
  state.stage = worker_step_stage::vacant;
  state.plan.reset();
  state.work.reset();
}

std::int32_t worker_step_ring::unfinished() const {
  return static_cast<std::int32_t>(std::count_if(ring_.begin(), ring_.end(), [](const auto& it) {
    return it.stage == worker_step_stage::launched || it.stage == worker_step_stage::overdue;
  }));
}

}  // namespace deepinfer
