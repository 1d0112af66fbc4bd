// What a launched step reads and writes belongs to it until the device has ended it: staging slot,
// plan, work, and the result for as long as somebody reads it.
#include <doctest/doctest.h>

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "actors/virtual_actors.hpp"
#include "actors/worker.hpp"

using namespace deepinfer;

namespace {

class played_work final : public device_work {
public:
  explicit played_work(std::shared_ptr<const step_plan> plan) : plan_(std::move(plan)) {}
  step_id step() const override { return plan_->step; }
  device_status run(step_phase, const stream_ref&) override { return {}; }

private:
  std::shared_ptr<const step_plan> plan_;
};

/// Keeps an eye on the works of its staging slots.
class played_runner final : public step_runner {
public:
  explicit played_runner(std::int32_t depth) { config_.depth = depth; }

  const runner_config& config() const override { return config_; }
  std::int32_t vocab_size() const override { return 64; }
  std::shared_ptr<device_work> stage(std::shared_ptr<const step_plan> plan) override {
    const auto slot = static_cast<std::int64_t>(plan->step.value) % (config_.depth + 1);
    CHECK_MESSAGE(slots_[slot].expired(), "the slot of step " << plan->step.value << " is in use");
    auto work = std::make_shared<played_work>(std::move(plan));
    slots_[slot] = work;
    return work;
  }
  void set_masks(device_work&, std::shared_ptr<const sample_gate>) override {}
  void collect(const device_work& work, step_result& out) override {
    out.clear();
    out.step = work.step();
    out.tokens.push_back(static_cast<token_id>(work.step().value));
  }
  void reset() override {}
  void poison(std::span<const block_id>, std::span<const slot_id>) override {}

  std::size_t held() const {
    std::size_t out = 0;
    for (const auto& [slot, work] : slots_) out += std::size_t{!work.expired()};
    return out;
  }

private:
  runner_config config_;
  std::map<std::int64_t, std::weak_ptr<device_work>> slots_;
};

/// What the gate was asked and has not answered; what the worker has answered.
struct desk {
  std::deque<std::pair<step_id, caf::typed_response_promise<step_done>>> steps;
  std::vector<result_ptr> results;
};

device_gate_actor::behavior_type played_gate(device_gate_actor::pointer self, desk* on) {
  return {
    [self, on](submit_step& asked) {
      on->steps.emplace_back(asked.work->step(), self->make_response_promise<step_done>());
      return on->steps.back().second;
    },
    [](fired_atom, ticket, const device_status&, const phase_times&) {},
    [](recover_atom, step_id) { return step_done{}; },
    [](gate_atom, step_id) {},
    [on](wake_atom) {  // the test's word: the oldest has ended
      auto it = std::move(on->steps.front());
      on->steps.pop_front();
      step_done done;
      done.step = it.first;
      it.second.deliver(done);
    },
  };
}

caf::behavior boss(caf::event_based_actor* self, worker_actor worker, desk* on) {
  return {[=](const plan_ptr& plan) {
    self->request(worker, caf::infinite, plan).then([on](const result_ptr& done) {
      on->results.push_back(done);
    });
  }};
}

class played_worker {
public:
  explicit played_worker(std::int32_t depth) : runner_(std::make_shared<played_runner>(depth)) {
    auto& system = actors_.system();
    gate_ = system.spawn(played_gate, &desk_);
    worker_ = system.spawn(worker, worker_links{gate_, runner_, std::chrono::seconds(1)});
    boss_ = system.spawn(boss, worker_, &desk_);
  }
  ~played_worker() {
    caf::anon_send_exit(boss_, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(worker_, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(gate_, caf::exit_reason::user_shutdown);
    actors_.run_all();
  }

  std::weak_ptr<const step_plan> launch(std::uint64_t step) {
    auto plan = std::make_shared<step_plan>();
    plan->clear();
    plan->step = {step};
    std::weak_ptr<const step_plan> seen = plan;
    tell_from_outside(boss_, plan_ptr{std::move(plan)});
    actors_.run_all();
    return seen;
  }
  void end_oldest() {
    tell_from_outside(gate_, wake_atom::value);
    actors_.run_all();
  }

  std::vector<result_ptr>& results() { return desk_.results; }
  const played_runner& runner() const { return *runner_; }

private:
  std::shared_ptr<played_runner> runner_;
  desk desk_;
  virtual_actors actors_{0};
  device_gate_actor gate_;
  worker_actor worker_;
  caf::actor boss_;
};

}  // namespace

TEST_CASE("a step's slot, plan and work are its own until the device has ended it, and its result "
          "until nobody reads it any more [I22]") {
  for (const std::int32_t depth : {1, 2, 3}) {
    CAPTURE(depth);
    played_worker it(depth);
    std::deque<std::weak_ptr<const step_plan>> plans;
    std::uint64_t launched = 0;
    while (std::ssize(plans) < depth) plans.push_back(it.launch(++launched));
    for (std::uint64_t ended = 1; ended <= 12; ++ended) {
      for (const auto& plan : plans) CHECK(!plan.expired());
      CHECK(it.runner().held() == plans.size());
      it.end_oldest();
      CHECK(plans.front().expired());
      plans.pop_front();
      REQUIRE(it.results().size() == ended);
      plans.push_back(it.launch(++launched));
    }
    // The reader has kept them all: none was written again.
    for (std::size_t i = 0; i < it.results().size(); ++i) {
      CHECK(it.results()[i]->step.value == i + 1);
      CHECK(it.results()[i]->tokens == std::vector<token_id>{static_cast<token_id>(i + 1)});
    }
    const auto* one_of_them = it.results().front().get();
    it.results().clear();
    it.end_oldest();
    CHECK(it.results().front().get() == one_of_them);  // and free to be used again
  }
}
