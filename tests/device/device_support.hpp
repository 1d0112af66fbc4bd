/// Work that writes down what a device does with it, and a place for completions.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/device/cpu_device.hpp"
#include "runtime/device/step_launch.hpp"
#include "runtime/device/virtual_device.hpp"

namespace deepinfer {

/// What happened, in order, from any thread: "forward 3", "done 3".
class event_log {
public:
  void add(std::string what) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(what));
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

class logged_work : public device_work {
public:
  logged_work(std::uint64_t step, event_log* log) : step_(step), log_(log) {}
  ~logged_work() override {
    if (log_destruction) log_->add("gone " + std::to_string(step_));
  }

  step_id step() const override { return step_id{step_}; }
  device_status run(step_phase phase, const stream_ref& stream) override {
    if (log_) log_->add(std::string(name_of(phase)) + " " + std::to_string(step_));
    has_team = has_team && stream.team != nullptr;
    return has_failing_phase && phase == failing_phase ? status : device_status{};
  }

  bool has_failing_phase = false;
  step_phase failing_phase = step_phase::forward;
  device_status status{errc::device_failed, false};
  bool has_team = true;
  bool log_destruction = false;

private:
  std::uint64_t step_;
  event_log* log_;
};

/// Receives completions. One per launch; `user` of launch_step.
class completions {
public:
  struct record {
    ticket id;
    device_status status;
    phase_times times;
  };

  explicit completions(event_log* log = nullptr) : log_(log) {}

  static void receive(void* user, ticket id, device_status status, const phase_times& times) {
    auto& self = *static_cast<completions*>(user);
    if (self.log_) self.log_->add("done " + std::to_string(id.value));
    const std::lock_guard lock(self.mutex_);
    self.records_.push_back({id, status, times});
    self.changed_.notify_all();
  }
  std::vector<record> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return records_.size() >= count; });
    return records_;
  }
  std::vector<record> so_far() {
    const std::lock_guard lock(mutex_);
    return records_;
  }

private:
  event_log* log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<record> records_;
};

/// The devices every property of the seam is checked on.
struct device_under_test {
  std::string name;
  std::unique_ptr<device> dev;

  /// Lets virtual time run; a real device runs by itself.
  void settle() {
    if (auto* clocked = dynamic_cast<virtual_device*>(dev.get())) clocked->run_until_idle();
  }
};

inline std::vector<device_under_test> devices() {
  std::vector<device_under_test> out;
  for (const std::int32_t threads : {1, 3})
    out.push_back({"cpu with " + std::to_string(threads) + " threads",
                   std::make_unique<cpu_device>(cpu_device_config{threads, 64})});
  out.push_back({"virtual", std::make_unique<virtual_device>()});
  return out;
}

}  // namespace deepinfer
