/// When to try again to reach somebody who did not answer: at once, then after pauses that double
/// up to a limit, each shortened at random so that many who lost the same node do not come back
/// together. A plain class; the random share is an argument.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace deepinfer {

class reconnect_pace {
public:
  static constexpr std::chrono::milliseconds first{50};
  static constexpr std::chrono::milliseconds most{5'000};

  /// The pause before the next attempt; `share` in [0, 1) shortens it by up to half.
  std::chrono::milliseconds next(double share) {
    const auto pause = std::min(first * (std::int64_t{1} << std::min(failures_, 20)), most);
    ++failures_;
    const auto shorter = static_cast<double>(pause.count()) * (1.0 - share / 2);
    return std::chrono::milliseconds(static_cast<std::int64_t>(shorter));
  }

  void succeeded() { failures_ = 0; }
  std::int32_t failures() const { return failures_; }

private:
  std::int32_t failures_ = 0;
};

}  // namespace deepinfer
