/// Keeps a line that is said again and again from filling a log: within an interval it is written
/// once, then counted. Not thread-safe; time is an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/log.hpp"

namespace deepinfer {

class repeat_filter {
public:
  using time_point = std::chrono::steady_clock::time_point;

  struct told {
    severity level = severity::warning;
    std::string line;

    bool operator==(const told&) const = default;
  };

  explicit repeat_filter(std::chrono::milliseconds interval, std::size_t most_lines = 32)
    : interval_(interval),
      most_lines_(most_lines) {}

  /// Is `line`, said now, to be written?
  bool admit(severity level, std::string_view line, time_point now);

  /// What was held back and whose interval is over, as lines with their counts.
  std::vector<told> take_overdue(time_point now);
  /// The same of all that is held back.
  std::vector<told> take_all(time_point now);

  /// When something that is held back is to be taken; nothing: nothing is.
  std::optional<time_point> due() const;

private:
  struct entry {
    severity level;
    std::string line;
    time_point since;
    std::uint64_t repeats = 0;
  };

  std::chrono::milliseconds interval_;
  std::size_t most_lines_;
  std::vector<entry> entries_;  ///< oldest first
};

}  // namespace deepinfer
