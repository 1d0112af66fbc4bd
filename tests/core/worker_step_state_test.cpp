#include <doctest/doctest.h>

#include <memory>

#include "runtime/base/random.hpp"
#include "runtime/core/worker_step_state.hpp"

using namespace deepinfer;

namespace {

std::shared_ptr<const step_plan> plan_of(std::uint64_t step) {
  auto plan = std::make_shared<step_plan>();
  plan->step = {step};
  return plan;
}

class no_work final : public device_work {
public:
  step_id step() const override { return {1}; }
  device_status run(step_phase, const stream_ref&) override { return {}; }
};

}  // namespace

TEST_CASE("a staging slot is not opened again before its step has finished [I22]") {
  for (std::int32_t depth = 1; depth <= 3; ++depth) {
    worker_step_ring ring(depth);
    for (std::int32_t i = 1; i <= depth; ++i) {
      REQUIRE(ring.can_open());
      CHECK(ring.open(plan_of(static_cast<std::uint64_t>(i))).staging == i % (depth + 1));
    }
    CAPTURE(depth);
    CHECK_FALSE(ring.can_open());  // depth unreported
    CHECK(ring.unfinished() == depth);
    CHECK(ring.complete({1}, 1, {}, {}) == completion_kind::in_time);
    ring.report(*ring.reportable());
    CHECK(ring.can_open());
  }
}

TEST_CASE("plan and work of a step live until its completion has come, also after a time-out "
          "[I22][I23]") {
  worker_step_ring ring(2);
  auto plan = plan_of(1);
  auto work = std::make_shared<no_work>();
  std::weak_ptr<const step_plan> plan_alive = plan;
  std::weak_ptr<device_work> work_alive = work;
  auto& state = ring.open(std::move(plan));
  state.work = std::move(work);
  CHECK(ring.expire({1}, state.generation));
  REQUIRE(ring.reportable());
  CHECK(ring.reportable()->status.code == errc::device_failed);
  ring.report(*ring.reportable());
  CHECK_FALSE(plan_alive.expired());
  CHECK_FALSE(work_alive.expired());
  CHECK(ring.unfinished() == 1);
  CHECK(ring.in_flight() == 0);
  CHECK(ring.complete({1}, 1, {}, {}) == completion_kind::proof);
  CHECK(plan_alive.expired());
  CHECK(work_alive.expired());
}

TEST_CASE("an overdue step keeps its place: the ring stops before it would be used again [I22]") {
  worker_step_ring ring(2);
  CHECK(ring.expire({1}, ring.open(plan_of(1)).generation));
  ring.report(*ring.reportable());
  for (std::uint64_t step = 2; step <= 3; ++step) {
    REQUIRE(ring.can_open());
    const auto generation = ring.open(plan_of(step)).generation;
    CHECK(ring.complete({step}, generation, {}, {}) == completion_kind::in_time);
    ring.report(*ring.reportable());
  }
  CHECK(ring.in_flight() == 0);
  CHECK_FALSE(ring.can_open());
  CHECK(ring.complete({1}, 1, {}, {}) == completion_kind::proof);
  CHECK(ring.can_open());
}

TEST_CASE("a completion means the step and generation it was asked for, never a later user of the "
          "place [I24][I55]") {
  worker_step_ring ring(1);  // places: 0 and 1
  CHECK(ring.open(plan_of(1)).generation == 1);
  CHECK(ring.complete({1}, 1, {}, {}) == completion_kind::in_time);
  CHECK(ring.complete({1}, 1, {}, {}) == completion_kind::unknown);  // told twice
  ring.report(*ring.reportable());
  CHECK(ring.complete({1}, 1, {}, {}) == completion_kind::unknown);
  CHECK(ring.open(plan_of(2)).generation == 1);
  CHECK(ring.complete({2}, 1, {}, {}) == completion_kind::in_time);
  ring.report(*ring.reportable());
  CHECK(ring.open(plan_of(3)).generation == 2);  // the place of step 1 again
  CHECK(ring.complete({1}, 1, {}, {}) == completion_kind::unknown);
  CHECK(ring.complete({3}, 1, {}, {}) == completion_kind::unknown);
  CHECK_FALSE(ring.expire({3}, 1));
  CHECK(ring.reportable() == nullptr);
  CHECK(ring.complete({3}, 2, {}, {}) == completion_kind::in_time);
  CHECK_FALSE(ring.expire({3}, 2));  // too late to be overdue
}

TEST_CASE("steps are reported once, in launch order, whatever the order of completions and "
          "time-outs [I01][I24]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    worker_step_ring ring(3);
    std::uint64_t opened = 0, reported = 0;
    std::vector<std::uint64_t> generation_of{0};
    for (std::uint32_t i = 0; i < 120; ++i) {
      const auto words = random_words(seed, i, draw_purpose::target, 0);
      const auto step = opened == 0 ? 1 : 1 + words[1] % opened;
      if (words[0] % 4 == 0 && ring.can_open())
        generation_of.push_back(ring.open(plan_of(++opened)).generation);
      else if (words[0] % 4 == 1 && opened > 0)
        ring.expire({step}, generation_of[step]);
      else if (words[0] % 4 == 2 && opened > 0)
        ring.complete({step}, generation_of[step], {}, {});
      while (auto* state = ring.reportable()) {
        CHECK(state->step.value == reported + 1);
        CHECK_FALSE(state->is_reported);
        ring.report(*state);
        ++reported;
      }
      CHECK(ring.in_flight() == static_cast<std::int32_t>(opened - reported));
      CHECK(ring.unfinished() <= 4);
    }
    CHECK(reported > 0);
  }
}
