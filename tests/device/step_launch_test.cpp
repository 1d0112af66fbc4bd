#include <doctest/doctest.h>

#include <algorithm>

#include "tests/device/device_support.hpp"

using namespace deepinfer;

TEST_CASE("phases of a step run in order, each once, and then the completion comes") {
  for (auto& made : devices()) {
    event_log log;
    completions done(&log);
    auto work = std::make_shared<logged_work>(7, &log);
    auto run = std::move(made);
    CAPTURE(run.name);
    REQUIRE(launch_step(*run.dev, work, ticket{7}, completions::receive, &done));
    run.settle();
    const auto record = done.wait_for(1).front();
    CHECK(log.lines() ==
          std::vector<std::string>{"copy_in 7", "forward 7", "sample 7", "copy_out 7", "done 7"});
    CHECK(work->has_team);
    CHECK(record.id == ticket{7});
    CHECK(record.status.code == errc::ok);
    std::int64_t last = 0;
    for (std::size_t i = 0; i < step_phases; ++i) {
      if (i == static_cast<std::size_t>(step_phase::sample_gated)) continue;
      CHECK(record.times.begin_ns[i] >= last);
      CHECK(record.times.end_ns[i] >= record.times.begin_ns[i]);
      last = record.times.end_ns[i];
    }
  }
}

TEST_CASE("the first phase that fails skips the rest, its status arrives, later steps run on") {
  for (const auto phase :
       {step_phase::copy_in, step_phase::forward, step_phase::sample, step_phase::copy_out}) {
    for (auto& made : devices()) {
      CAPTURE(name_of(phase));
      event_log log;
      completions done;
      auto failing = std::make_shared<logged_work>(1, &log);
      failing->has_failing_phase = true;
      failing->failing_phase = phase;
      failing->status = {errc::internal, true};
      auto run = std::move(made);
      CAPTURE(run.name);
      REQUIRE(launch_step(*run.dev, failing, ticket{1}, completions::receive, &done));
      auto next = std::make_shared<logged_work>(2, &log);
      REQUIRE(launch_step(*run.dev, next, ticket{2}, completions::receive, &done));
      run.settle();
      const auto records = done.wait_for(2);
      CHECK(records[0].id == ticket{1});
      CHECK(records[0].status.code == errc::internal);
      CHECK(records[0].status.is_sticky);
      CHECK(records[1].status.code == errc::ok);
      const auto lines = log.lines();
      const auto ran = std::count_if(lines.begin(), lines.end(),
                                     [](const auto& line) { return line.ends_with(" 1"); });
      CHECK(ran == (phase == step_phase::copy_out ? 4 : static_cast<std::int64_t>(phase) + 1));
      CHECK(lines.size() == static_cast<std::size_t>(ran) + 4);
      for (auto later = static_cast<std::size_t>(phase) + 1; later < step_phases; ++later)
        CHECK(records[0].times.end_ns[later] == 0);
    }
  }
}

TEST_CASE("many steps complete once each, in launch order, whatever fails [I01]") {
  for (auto& made : devices()) {
    completions done;
    auto run = std::move(made);
    CAPTURE(run.name);
    constexpr std::uint64_t steps = 300;
    std::size_t settled = 0;
    for (std::uint64_t step = 1; step <= steps; ++step) {
      auto work = std::make_shared<logged_work>(step, nullptr);
      work->has_failing_phase = step % 5 == 0;
      constexpr step_phase phases[] = {step_phase::copy_in, step_phase::forward, step_phase::sample,
                                       step_phase::copy_out};
      work->failing_phase = phases[step / 5 % 4];
      REQUIRE(launch_step(*run.dev, work, ticket{step}, completions::receive, &done));
      if (step % 3 != 0) continue;
      run.settle();
      done.wait_for(settled = step);
    }
    run.settle();
    const auto records = done.wait_for(steps);
    run.dev.reset();
    CHECK(done.so_far().size() == steps);
    for (std::uint64_t step = 1; step <= steps; ++step) {
      CHECK(records[step - 1].id == ticket{step});
      CHECK((records[step - 1].status.code == errc::ok) == (step % 5 != 0));
    }
    CHECK(settled == steps);
  }
}

TEST_CASE("the work lives until its completion, though nobody else holds it [I19][I23]") {
  for (auto& made : devices()) {
    event_log log;
    completions done(&log);
    auto run = std::move(made);
    CAPTURE(run.name);
    {
      auto work = std::make_shared<logged_work>(1, &log);
      work->log_destruction = true;
      REQUIRE(launch_step(*run.dev, std::move(work), ticket{1}, completions::receive, &done));
    }
    run.settle();
    run.dev.reset();  // ends the streams, so that the destruction has been logged
    const auto lines = log.lines();
    REQUIRE(lines.size() == 6);
    CHECK(lines[4] == "done 1");
    CHECK(lines[5] == "gone 1");
  }
}

TEST_CASE("destroying a device lets what was launched end first") {
  for (auto& made : devices()) {
    event_log log;
    completions done(&log);
    auto run = std::move(made);
    CAPTURE(run.name);
    for (std::uint64_t step = 1; step <= 8; ++step)
      REQUIRE(launch_step(*run.dev, std::make_shared<logged_work>(step, &log), ticket{step},
                          completions::receive, &done));
    run.dev.reset();
    const auto records = done.so_far();
    REQUIRE(records.size() == 8);
    for (const auto& record : records) CHECK(record.status.code == errc::ok);
    CHECK(log.lines().size() == 8 * 5);
  }
}

TEST_CASE("a launch without room enqueues nothing and says what was missing") {
  event_log log;
  completions done(&log);
  virtual_device dev({.queue_entries = 7});  // after what its last completion writes to
  for (std::uint64_t step = 1; step <= 2; ++step)
    REQUIRE(launch_step(dev, std::make_shared<logged_work>(step, &log), ticket{step},
                        completions::receive, &done));
  const auto before = dev.room(stream_kind::copy_in);
  const auto refused = launch_step(dev, std::make_shared<logged_work>(3, &log), ticket{3},
                                   completions::receive, &done);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::overloaded);
  CHECK(refused.error().message.find("step 3: stream compute of device virtual has room for 1") !=
        std::string::npos);
  CHECK(dev.room(stream_kind::copy_in) == before);
  dev.run_until_idle();
  CHECK(done.so_far().size() == 2);
  CHECK(launch_step(dev, std::make_shared<logged_work>(4, &log), ticket{4}, completions::receive,
                    &done));
}

TEST_CASE(
  "a step whose phases all ran fails too when the device is aborted before its completion") {
  class aborting_work final : public logged_work {
  public:
    using logged_work::logged_work;
    device_status run(step_phase phase, const stream_ref& stream) override {
      if (phase == step_phase::copy_out) dev->abort();
      return logged_work::run(phase, stream);
    }
    device* dev = nullptr;
  };
  for (auto& made : devices()) {
    event_log log;
    completions done(&log);
    auto work = std::make_shared<aborting_work>(1, &log);
    auto run = std::move(made);
    CAPTURE(run.name);
    work->dev = run.dev.get();
    REQUIRE(launch_step(*run.dev, work, ticket{1}, completions::receive, &done));
    run.settle();
    CHECK(done.wait_for(1).front().status.is_sticky);
    CHECK(log.lines().size() == 5);
  }
}

TEST_CASE("a gated step stops behind its sampling; later steps pass; the gate ends it") {
  for (auto& made : devices()) {
    event_log log;
    completions done(&log);
    auto run = std::move(made);
    CAPTURE(run.name);
    auto gated = std::make_shared<logged_work>(1, &log);
    auto later = std::make_shared<logged_work>(2, &log);
    const auto held = launch_gated_step(*run.dev, gated, ticket{1}, completions::receive, &done);
    REQUIRE(held.has_value());
    REQUIRE(launch_step(*run.dev, later, ticket{2}, completions::receive, &done));
    run.settle();
    done.wait_for(1);
    const auto before = log.lines();
    CHECK(std::count(before.begin(), before.end(), "copy_out 1") == 0);
    REQUIRE(finish_step(*held));
    run.settle();
    const auto records = done.wait_for(2);
    const auto after = log.lines();
    CHECK(std::vector<std::string>(after.end() - 3, after.end()) ==
          std::vector<std::string>{"sample_gated 1", "copy_out 1", "done 1"});
    CHECK(records[1].status.code == errc::ok);
    CHECK(records[1].times.begin_ns[static_cast<std::size_t>(step_phase::sample_gated)] >= 0);
  }
}

TEST_CASE("a gated step whose gate never opens fails once, and its work is let go") {
  for (auto& made : devices()) {
    event_log log;
    completions done;
    auto run = std::move(made);
    CAPTURE(run.name);
    auto gated = std::make_shared<logged_work>(1, &log);
    gated->log_destruction = true;
    const auto held =
      launch_gated_step(*run.dev, std::move(gated), ticket{1}, completions::receive, &done);
    REQUIRE(held.has_value());
    abandon_step(*held);
    run.settle();
    const auto records = done.wait_for(1);
    CHECK(records[0].status.code == errc::device_failed);
    CHECK_FALSE(records[0].status.is_sticky);
    const auto lines = log.lines();
    CHECK(std::count(lines.begin(), lines.end(), "copy_out 1") == 0);
  }
}
