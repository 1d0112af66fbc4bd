#include "runtime/base/span_ring.hpp"

#include <algorithm>
#include <utility>

namespace deepinfer {

std::int64_t begin_of(std::span<const step_trace> steps) {
  std::int64_t out = 0;
  for (const auto& it : steps)
    if (out == 0 || it.plan_begin_ns < out) out = it.plan_begin_ns;
  return out;
}

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

std::vector<request_span> span_ring::since(std::int64_t begin_ns) const {
  auto out = newest(limit_);
  std::erase_if(out, [begin_ns](const request_span& it) { return it.end_ns < begin_ns; });
  return out;
}

void span_ring::note(preemption_mark entry) {
  const std::lock_guard lock(guard_);
  marks_.push_back(std::move(entry));
  if (marks_.size() > limit_) marks_.pop_front();
}

std::vector<preemption_mark> span_ring::preempted_since(std::int64_t begin_ns) const {
  const std::lock_guard lock(guard_);
  std::vector<preemption_mark> out;
  for (const auto& it : marks_)
    if (it.at_ns >= begin_ns) out.push_back(it);
  return out;
}

}  // namespace deepinfer
