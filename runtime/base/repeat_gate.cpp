#include "runtime/base/repeat_gate.hpp"

#include <system_error>
#include <utility>

namespace deepinfer {

using clock = std::chrono::steady_clock;

repeat_gate::repeat_gate(std::chrono::milliseconds interval, writer write)
  : write_(std::move(write)),
    filter_(interval) {}

repeat_gate::~repeat_gate() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    for (const auto& it : filter_.take_all(clock::now())) write_(it.level, it.line);
  }
  changed_.notify_one();
  if (teller_.joinable()) teller_.join();
}

void repeat_gate::say(severity level, std::string_view line) {
  const auto now = clock::now();
  const std::lock_guard lock(mutex_);
  for (const auto& it : filter_.take_overdue(now)) write_(it.level, it.line);
  if (filter_.admit(level, line, now)) return write_(level, line);
  start_teller();
  changed_.notify_one();
}

void repeat_gate::start_teller() {
  if (teller_.joinable()) return;
  try {
    teller_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    // No thread is to be had: the next line that is said tells what is overdue.
  }
}

void repeat_gate::run() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    const auto due = filter_.due();
    if (due)
      changed_.wait_until(lock, *due);
    else
      changed_.wait(lock);
    for (const auto& it : filter_.take_overdue(clock::now())) write_(it.level, it.line);
  }
}

}  // namespace deepinfer
