#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/device/step_launch.hpp"
#include "runtime/device/virtual_device.hpp"

using namespace deepinfer;

namespace {

struct event {
  char what;  ///< b: a phase begins, r: it runs
  std::uint64_t step;
  step_phase phase;
  std::int64_t at;

  friend bool operator==(const event&, const event&) = default;
};

class watched_work final : public device_work {
public:
  watched_work(std::uint64_t number, virtual_device& clock, std::vector<event>& events)
    : number_(number),
      clock_(clock),
      events_(events) {}
  step_id step() const override { return {number_}; }
  void begin(step_phase phase) override { add('b', phase); }
  device_status run(step_phase phase, const stream_ref&) override {
    add('r', phase);
    return {};
  }

private:
  void add(char what, step_phase phase) {
    events_.push_back({what, number_, phase, clock_.now_ns()});
  }

  std::uint64_t number_;
  virtual_device& clock_;
  std::vector<event>& events_;
};

void ignore(void*, ticket, device_status, const phase_times&) {}

std::vector<event> of_phase(const std::vector<event>& events, step_phase phase) {
  std::vector<event> out;
  for (const auto& it : events)
    if (it.phase == phase) out.push_back(it);
  return out;
}

void launch(virtual_device& dev, std::uint64_t step, std::vector<event>& events) {
  auto work = std::make_shared<watched_work>(step, dev, events);
  REQUIRE(launch_step(dev, std::move(work), ticket{step}, ignore, nullptr));
}

}  // namespace

TEST_CASE("a virtual phase is told when it begins, and runs when its time has passed") {
  std::vector<event> events;
  virtual_device dev({.phase_ns = {1, 10, 3, 0, 2}});
  launch(dev, 1, events);
  CHECK(events == std::vector<event>{{'b', 1, step_phase::copy_in, 0}});
  launch(dev, 2, events);
  dev.run_until_idle();
  CHECK(of_phase(events, step_phase::forward) ==
        std::vector<event>{{'b', 1, step_phase::forward, 1},
                           {'r', 1, step_phase::forward, 11},
                           {'b', 2, step_phase::forward, 14},
                           {'r', 2, step_phase::forward, 24}});
  CHECK(of_phase(events, step_phase::copy_out).size() == 4);
}

TEST_CASE("a phase that has failed does not begin, nor do those behind it") {
  std::vector<event> events;
  virtual_device dev(
    {.phase_ns = {1, 10, 3, 0, 2}, .faults = {{1, step_phase::forward, fault_kind::fail, 1}}});
  launch(dev, 1, events);
  dev.run_until_idle();
  CHECK(events ==
        std::vector<event>{{'b', 1, step_phase::copy_in, 0}, {'r', 1, step_phase::copy_in, 1}});
}
