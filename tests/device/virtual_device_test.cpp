#include <doctest/doctest.h>

#include "tests/device/device_support.hpp"

using namespace deepinfer;

namespace {

constexpr std::int64_t ms = 1'000'000;

void launch(device& dev, std::uint64_t step, completions& done, event_log* log = nullptr) {
  REQUIRE(launch_step(dev, std::make_shared<logged_work>(step, log), ticket{step},
                      completions::receive, &done));
}

constexpr auto at(step_phase phase) {
  return static_cast<std::size_t>(phase);
}

}  // namespace

TEST_CASE("phases take their times, and a copy overlaps with the step before it") {
  completions done;
  virtual_device dev({.phase_ns = {1 * ms, 4 * ms, 2 * ms, 2 * ms, 3 * ms}});
  launch(dev, 1, done);
  launch(dev, 2, done);
  CHECK(dev.next_event_ns() == 1 * ms);
  dev.run_until_idle();
  const auto records = done.so_far();
  REQUIRE(records.size() == 2);
  const auto& first = records[0].times;
  const auto& second = records[1].times;
  CHECK(first.begin_ns == std::array<std::int64_t, 5>{0, 1 * ms, 5 * ms, 0, 7 * ms});
  CHECK(first.end_ns == std::array<std::int64_t, 5>{1 * ms, 5 * ms, 7 * ms, 0, 10 * ms});
  // copy_in of step 2 runs under forward of step 1, its forward under copy_out of step 1.
  CHECK(second.begin_ns == std::array<std::int64_t, 5>{1 * ms, 7 * ms, 11 * ms, 0, 13 * ms});
  CHECK(second.end_ns[4] == 16 * ms);
  CHECK(dev.now_ns() == 16 * ms);
  CHECK(dev.is_idle());
}

TEST_CASE("nothing runs inside launch, and the clock runs only as far as it is told") {
  event_log log;
  completions done(&log);
  virtual_device dev({.phase_ns = {0, 2 * ms, 0, 0, 0}});
  launch(dev, 1, done, &log);
  CHECK(log.lines().empty());
  CHECK(dev.next_event_ns() == 0);  // copy_in ends where it began
  dev.advance_to(0);
  CHECK(log.lines() == std::vector<std::string>{"copy_in 1"});
  dev.advance_to(2 * ms - 1);
  CHECK(log.lines().size() == 1);
  CHECK(dev.now_ns() == 2 * ms - 1);
  dev.advance_to(2 * ms);
  CHECK(log.lines() ==
        std::vector<std::string>{"copy_in 1", "forward 1", "sample 1", "copy_out 1", "done 1"});
  CHECK_FALSE(dev.next_event_ns());
}

TEST_CASE("delays add up for their step and phase, step 0 means every step") {
  completions done;
  virtual_device dev({.phase_ns = {0, 2 * ms, 1 * ms, 0, 0},
                      .delays = {{4, step_phase::forward, 10 * ms},
                                 {0, step_phase::sample, 1 * ms},
                                 {4, step_phase::sample, 5 * ms}}});
  for (std::uint64_t step = 3; step <= 5; ++step) launch(dev, step, done);
  dev.run_until_idle();
  const auto records = done.so_far();
  const auto took = [&](std::size_t i, step_phase phase) {
    return records[i].times.end_ns[at(phase)] - records[i].times.begin_ns[at(phase)];
  };
  CHECK(took(0, step_phase::forward) == 2 * ms);
  CHECK(took(0, step_phase::sample) == 2 * ms);
  CHECK(took(1, step_phase::forward) == 12 * ms);
  CHECK(took(1, step_phase::sample) == 7 * ms);
  CHECK(took(2, step_phase::forward) == 2 * ms);
}

TEST_CASE("a failing phase costs its time, fails its step and no other") {
  event_log log;
  completions done(&log);
  virtual_device dev({.faults = {{2, step_phase::forward, fault_kind::fail, 1}}});
  for (std::uint64_t step = 1; step <= 3; ++step) launch(dev, step, done, &log);
  dev.run_until_idle();
  const auto records = done.so_far();
  REQUIRE(records.size() == 3);
  CHECK(records[0].status.code == errc::ok);
  CHECK(records[1].status.code == errc::device_failed);
  CHECK_FALSE(records[1].status.is_sticky);
  CHECK(records[1].times.end_ns[at(step_phase::sample)] == 0);
  CHECK(records[2].status.code == errc::ok);
  CHECK(records[2].times.begin_ns[at(step_phase::forward)] == 4 * ms);
  for (const auto& line : log.lines()) CHECK(line != "forward 2");
}

TEST_CASE("a fault strikes as often as it says, from its step on") {
  completions done;
  virtual_device dev({.faults = {{2, step_phase::sample, fault_kind::fail, 2}}});
  for (std::uint64_t step = 1; step <= 5; ++step) launch(dev, step, done);
  dev.run_until_idle();
  std::vector<errc> codes;
  for (const auto& record : done.so_far()) codes.push_back(record.status.code);
  CHECK(codes ==
        std::vector<errc>{errc::ok, errc::device_failed, errc::device_failed, errc::ok, errc::ok});
}

TEST_CASE("a lost completion is lost alone: its work ran, the next step completes") {
  for (const auto phase : {step_phase::forward, step_phase::copy_out}) {
    event_log log;
    completions done(&log);
    virtual_device dev({.faults = {{1, phase, fault_kind::lose, 1}}});
    for (std::uint64_t step = 1; step <= 2; ++step) launch(dev, step, done, &log);
    dev.run_until_idle();
    CHECK(log.lines().size() == 4 + 5);
    REQUIRE(done.so_far().size() == 1);
    CHECK(done.so_far()[0].id == ticket{2});
  }
}

TEST_CASE("a hang stops its stream for good, until abort fails it with a sticky status") {
  event_log log;
  completions done(&log);
  virtual_device dev({.faults = {{2, step_phase::forward, fault_kind::hang, 1}}});
  for (std::uint64_t step = 1; step <= 3; ++step) launch(dev, step, done, &log);
  dev.advance_to(1000 * ms);
  CHECK(done.so_far().size() == 1);
  CHECK_FALSE(dev.next_event_ns());
  CHECK_FALSE(dev.is_idle());
  dev.abort();
  CHECK(dev.next_event_ns() == 1000 * ms);
  dev.advance_to(1000 * ms);
  const auto records = done.so_far();
  REQUIRE(records.size() == 3);
  for (std::size_t i = 1; i < 3; ++i) {
    CHECK(records[i].id == ticket{i + 1});
    CHECK(records[i].status.code == errc::device_failed);
    CHECK(records[i].status.is_sticky);
  }
  for (const auto& line : log.lines()) CHECK(line != "forward 2");
}

TEST_CASE("destroying a device with hanging work still completes every step") {
  completions done;
  {
    virtual_device dev({.faults = {{1, step_phase::copy_in, fault_kind::hang, 1}}});
    for (std::uint64_t step = 1; step <= 2; ++step) launch(dev, step, done);
  }
  REQUIRE(done.so_far().size() == 2);
  CHECK(done.so_far()[0].status.is_sticky);
}

TEST_CASE("jitter stays within its bound, repeats with its seed, and seed 0 has none") {
  const auto forward_times = [](std::uint64_t seed) {
    completions done;
    virtual_device dev(
      {.phase_ns = {0, 2 * ms, 0, 0, 0}, .jitter_ns = 1 * ms, .jitter_seed = seed});
    std::vector<std::int64_t> out;
    for (std::uint64_t step = 1; step <= 50; ++step) {
      launch(dev, step, done);
      dev.run_until_idle();
      const auto times = done.so_far().back().times;
      out.push_back(times.end_ns[at(step_phase::forward)] -
                    times.begin_ns[at(step_phase::forward)]);
    }
    return out;
  };
  const auto none = forward_times(0);
  const auto some = forward_times(5);
  for (const auto ns : none) CHECK(ns == 2 * ms);
  for (const auto ns : some) CHECK(ns >= 2 * ms);
  for (const auto ns : some) CHECK(ns <= 3 * ms);
  CHECK(some != none);
  CHECK(some == forward_times(5));
  CHECK(some != forward_times(6));
}

TEST_CASE("at equal times copy-in ends before compute, and compute before copy-out") {
  event_log log;
  completions done(&log);
  virtual_device dev({.phase_ns = {2 * ms, 2 * ms, 0, 0, 2 * ms}});
  for (std::uint64_t step = 1; step <= 3; ++step) launch(dev, step, done, &log);
  dev.advance_to(6 * ms);
  CHECK(log.lines() == std::vector<std::string>{"copy_in 1", "copy_in 2", "forward 1", "sample 1",
                                                "copy_in 3", "forward 2", "sample 2", "copy_out 1",
                                                "done 1"});
}

TEST_CASE("a step model is asked when a phase begins, and delays come on top") {
  std::vector<std::pair<std::uint64_t, step_phase>> asked;
  virtual_device_config config;
  config.delays = {{2, step_phase::forward, 5 * ms}};
  virtual_device* told = nullptr;
  std::int64_t asked_at_ns = -1;
  config.phase_time = [&](step_id step, step_phase phase) -> std::int64_t {
    asked.emplace_back(step.value, phase);
    if (step.value == 2 && phase == step_phase::forward) asked_at_ns = told->now_ns();
    return phase == step_phase::forward ? static_cast<std::int64_t>(step.value) * 10 * ms : 1 * ms;
  };
  completions done;
  virtual_device dev(config);
  told = &dev;
  launch(dev, 1, done);
  launch(dev, 2, done);
  dev.run_until_idle();
  const auto records = done.so_far();
  REQUIRE(records.size() == 2);
  CHECK(records[0].times.end_ns[at(step_phase::forward)] == 11 * ms);
  CHECK(asked_at_ns == 12 * ms);  // behind the sampling of step 1, not when it was launched
  CHECK(records[1].times.end_ns[at(step_phase::forward)] == (12 + 20 + 5) * ms);
  // Four phases of each step, each once.
  CHECK(asked.size() == 8);
}
