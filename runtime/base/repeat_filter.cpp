#include "runtime/base/repeat_filter.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace deepinfer {

bool repeat_filter::admit(std::string_view line, time_point now) {
  const auto same = [line](const entry& it) { return it.line == line; };
  if (const auto found = std::find_if(entries_.begin(), entries_.end(), same);
      found != entries_.end()) {
    ++found->repeats;
    ++held_;
    return false;
  }
  // Too many different lines: those without a repeat are forgotten first, then none is filtered.
  if (entries_.size() >= most_lines_) {
    const auto idle = std::find_if(entries_.begin(), entries_.end(),
                                   [](const entry& it) { return it.repeats == 0; });
    if (idle == entries_.end()) return true;
    entries_.erase(idle);
  }
  entries_.push_back({std::string(line), now});
  return true;
}

std::vector<std::string> repeat_filter::take_overdue(time_point now) {
  std::vector<std::string> out;
  const auto is_over = [&](const entry& it) {
    if (now - it.since < interval_) return false;
    if (it.repeats > 0)
      out.push_back(
        fmt::format("{} ({} more in {} s)", it.line, it.repeats,
                    std::chrono::duration_cast<std::chrono::seconds>(now - it.since).count()));
    held_ -= it.repeats;
    return true;
  };
  std::erase_if(entries_, is_over);
  return out;
}

}  // namespace deepinfer
