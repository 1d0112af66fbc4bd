/// Lets lines through to a log, but not the same one again and again (repeat_filter.hpp). What is
/// held back is told when its interval is over, though nothing else is said, or at the end. From
/// any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>

#include "runtime/base/log.hpp"
#include "runtime/base/repeat_filter.hpp"

namespace deepinfer {

class repeat_gate {
public:
  /// Called by one thread at a time.
  using writer = std::function<void(severity, std::string_view)>;

  repeat_gate(std::chrono::milliseconds interval, writer write);
  ~repeat_gate();
  repeat_gate(const repeat_gate&) = delete;
  repeat_gate& operator=(const repeat_gate&) = delete;

  void say(severity level, std::string_view line);

private:
  void start_teller();
  void run();

  writer write_;
  std::mutex mutex_;
  std::condition_variable changed_;
  repeat_filter filter_;
  bool is_over_ = false;
  std::thread teller_;  ///< since a line was held back first
};

}  // namespace deepinfer
