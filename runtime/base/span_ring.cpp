#include "runtime/base/span_ring.hpp"

#include <algorithm>
#include <utility>

namespace deepinfer {

void span_ring::add(request_span entry) {
  const std::lock_guard lock(guard_);
  if (entries_.size() < limit_)
    entries_.push_back(std::move(entry));
  else
    entries_[next_] = std::move(entry);
  next_ = (next_ + 1) % limit_;
}

std::vector<request_span> span_ring::newest(std::size_t spans) const {
  const std::lock_guard lock(guard_);
  const auto used = entries_.size();
  const auto count = std::min(spans, used);
  std::vector<request_span> out;
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(entries_[(next_ + limit_ - count + i) % limit_]);
  return out;
}

}  // namespace deepinfer
