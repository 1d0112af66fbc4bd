#include "runtime/base/repeat_filter.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace deepinfer {

bool repeat_filter::admit(severity level, std::string_view line, time_point now) {
  const auto same = [&](const entry& it) { return it.level == level && it.line == line; };
  if (const auto found = std::find_if(entries_.begin(), entries_.end(), same);
      found != entries_.end()) {
    ++found->repeats;
    return false;
  }
  // Too many different lines: those without a repeat are forgotten first, then none is filtered.
  if (entries_.size() >= most_lines_) {
    const auto idle = std::find_if(entries_.begin(), entries_.end(),
                                   [](const entry& it) { return it.repeats == 0; });
    if (idle == entries_.end()) return true;
    entries_.erase(idle);
  }
  entries_.push_back({level, std::string(line), now});
  return true;
}

std::vector<repeat_filter::told> repeat_filter::take_overdue(time_point now) {
  std::vector<told> out;
  const auto is_over = [&](const entry& it) {
    if (now - it.since < interval_) return false;
    if (it.repeats > 0)
      out.push_back(
        {it.level,
         fmt::format("{} ({} more in {} s)", it.line, it.repeats,
                     std::chrono::duration_cast<std::chrono::seconds>(now - it.since).count())});
    return true;
  };
  std::erase_if(entries_, is_over);
  return out;
}

std::vector<repeat_filter::told> repeat_filter::take_all(time_point now) {
  const auto interval = std::exchange(interval_, std::chrono::milliseconds(0));
  auto out = take_overdue(now);
  interval_ = interval;
  return out;
}

std::optional<repeat_filter::time_point> repeat_filter::due() const {
  const auto held =
    std::find_if(entries_.begin(), entries_.end(), [](const entry& it) { return it.repeats > 0; });
  if (held == entries_.end()) return std::nullopt;
  return held->since + interval_;
}

}  // namespace deepinfer
