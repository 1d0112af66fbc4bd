/// Spinning for a moment before sleeping. Internal to the CPU device.
#pragma once

#include <chrono>
#include <cstdint>

namespace deepinfer {

inline std::int64_t steady_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
           std::chrono::steady_clock::now().time_since_epoch())
    .count();
}

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Polls `is_ready` for at most `spin_ns`; whether it became true.
template <class Predicate>
bool spin_until(std::int64_t spin_ns, Predicate&& is_ready) {
  if (is_ready()) return true;
  if (spin_ns <= 0) return false;
  const auto end = steady_now_ns() + spin_ns;
  do {
    for (int i = 0; i < 32; ++i) {
      cpu_relax();
      if (is_ready()) return true;
    }
  } while (steady_now_ns() < end);
  return false;
}

}  // namespace deepinfer
