#include "runtime/core/release_queue.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/check.hpp"
#include "runtime/core/mutant.hpp"

namespace deepinfer {

void release_queue::defer(lease_return::parked entry) {
  if (entry.blocks.empty() && entry.slots.empty()) return;
  if (!parked_.empty()) entry.fence = std::max(entry.fence, parked_.back().fence);
  block_count_ += static_cast<std::int64_t>(entry.blocks.size());
  slot_count_ += static_cast<std::int64_t>(entry.slots.size());
  parked_.push_back(std::move(entry));
}

kv_release release_queue::take(lease_return back) {
  DI_CHECK(back.rank == rank_, "leases of rank {} came to rank {}", back.rank.value, rank_.value);
  for (auto& entry : back.entries) defer(std::move(entry));
  return drain(back.settled);
}

kv_release release_queue::drain(step_id settled) {
  DI_CHECK(settled_ <= settled, "settled step {} went back from {}", settled.value, settled_.value);
  settled_ = settled;
  const auto stays = [this](const lease_return::parked& it) {
    // Drained a step before its fence has settled.
    if (settled_.value + (mutant(5) ? 1 : 0) < it.fence.value) return true;
    return suspect_ && *suspect_ <= it.fence && !mutant(33);  // 33: a time-out is an end
  };
  const auto end = std::find_if(parked_.begin(), parked_.end(), stays);
  std::size_t blocks = 0, slots = 0;
  for (auto it = parked_.begin(); it != end; ++it) {
    blocks += it->blocks.size();
    slots += it->slots.size();
  }
  kv_release freed{rank_, {}, {}};
  freed.blocks.reserve(blocks);
  freed.slots.reserve(slots);
  for (auto it = parked_.begin(); it != end; ++it) {
    freed.blocks.insert(freed.blocks.end(), it->blocks.rbegin(), it->blocks.rend());
    freed.slots.insert(freed.slots.end(), it->slots.begin(), it->slots.end());
  }
  parked_.erase(parked_.begin(), end);
  block_count_ -= static_cast<std::int64_t>(freed.blocks.size());
  slot_count_ -= static_cast<std::int64_t>(freed.slots.size());
  DI_CHECK(!parked_.empty() || block_count_ == 0, "{} blocks lost", block_count_);
  DI_CHECK(!parked_.empty() || slot_count_ == 0, "{} slots lost", slot_count_);
  return freed;
}

void release_queue::quarantine(step_id step) {
  if (step <= proven_) return;  // its completion overtook the time-out
  suspect_ = suspect_ ? std::min(*suspect_, step) : step;
  last_suspect_ = std::max(last_suspect_, step);
}

void release_queue::prove(step_id step) {
  proven_ = std::max(proven_, step);
  if (!suspect_ || proven_ < *suspect_) return;
  if (last_suspect_ <= proven_)
    suspect_.reset();
  else
    suspect_ = step_id{proven_.value + 1};  // a newer one is still out; steps between are not
}

}  // namespace deepinfer
