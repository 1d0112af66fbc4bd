/// Tells a second signal from the first one heard twice.
///
/// `timeout` signals its command and then its group, and a wrapper passes on what the terminal has
/// sent to both: a command gets the same signal twice at once, for one wish of its user. Called in
/// signal handlers: it takes no lock and does not allocate.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace deepinfer {

class signal_filter {
public:
  /// Nobody asks a second time so soon.
  static constexpr std::int64_t echo_ns = 200'000'000;

  /// Is it the last signal once more? What is an echo does not lengthen its time.
  bool is_echo(int signal, std::int64_t now_ns) {
    if (signal == last_signal_.load() && now_ns - last_ns_.load() < echo_ns) return true;
    last_signal_ = signal;
    last_ns_ = now_ns;
    return false;
  }
  bool is_echo(int signal) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return is_echo(signal, std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec);
  }
  void forget() { last_signal_ = 0; }

private:
  std::atomic<int> last_signal_{0};
  std::atomic<std::int64_t> last_ns_{0};
  static_assert(std::atomic<int>::is_always_lock_free &&
                std::atomic<std::int64_t>::is_always_lock_free);
};

}  // namespace deepinfer
