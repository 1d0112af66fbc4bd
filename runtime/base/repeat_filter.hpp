/// Keeps a line that is said again and again from filling a log: within an interval it is written
/// once, then counted. Not thread-safe; time is an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

class repeat_filter {
public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit repeat_filter(std::chrono::milliseconds interval, std::size_t most_lines = 32)
    : interval_(interval),
      most_lines_(most_lines) {}

  /// Is `line`, said now, to be written?
  bool admit(std::string_view line, time_point now);

  /// What was held back and whose interval is over, as lines with their counts.
  std::vector<std::string> take_overdue(time_point now);

  bool holds_lines() const { return held_ > 0; }

private:
  struct entry {
    std::string line;
    time_point since;
    std::uint64_t repeats = 0;
  };

  std::chrono::milliseconds interval_;
  std::size_t most_lines_;
  std::vector<entry> entries_;  ///< oldest first
  std::uint64_t held_ = 0;      ///< repeats in all entries
};

}  // namespace deepinfer
