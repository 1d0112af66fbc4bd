#include "runtime/base/trace_ring.hpp"

#include <algorithm>

namespace deepinfer {

void trace_ring::add(const step_trace& entry) {
  entries_[next_] = entry;
  next_ = (next_ + 1) % entries_.size();
  used_ = std::min(used_ + 1, entries_.size());
}

std::vector<step_trace> trace_ring::newest(std::size_t steps) const {
  const auto count = std::min(steps, used_);
  std::vector<step_trace> out;
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(entries_[(next_ + entries_.size() - count + i) % entries_.size()]);
  return out;
}

}  // namespace deepinfer
