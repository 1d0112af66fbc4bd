#include "runtime/core/block_book.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer {

block_book::block_book(std::int32_t blocks, std::int32_t slots)
  : uses_(static_cast<std::size_t>(blocks)),
    slots_(slots) {}

std::size_t block_book::index_of(block_id block) const {
  DI_CHECK(0 <= block.value && static_cast<std::size_t>(block.value) < uses_.size(),
           "block {} of {}", block.value, uses_.size());
  return static_cast<std::size_t>(block.value);
}

void block_book::enter(block_id block) {
  auto& use = uses_[index_of(block)];
  if (use.tables++ > 0) return;
  ++tabled_;
  if (use.fences > 0) --promised_;
}

void block_book::park(step_id fence, std::span<const block_id> blocks, std::int64_t slots,
                      step_id settled) {
  // The collector gives back in parking order: what waits for nothing waits for those before it.
  if (!parked_.empty()) fence = std::max(fence, parked_.back().fence);
  for (const auto block : blocks) {
    auto& use = uses_[index_of(block)];
    DI_CHECK(use.tables > 0, "block {} leaves a table it is not in", block.value);
    if (fence > settled) ++use.fences;
    if (--use.tables > 0) continue;
    --tabled_;
    if (use.fences > 0) ++promised_;
  }
  held_slots_ -= slots;
  DI_CHECK(held_slots_ >= 0, "{} slots held", held_slots_);
  if (fence <= settled) return;
  parked_slots_ += slots;
  parked_.push_back({fence, static_cast<std::int64_t>(blocks.size()), slots});
  parked_blocks_.insert(parked_blocks_.end(), blocks.begin(), blocks.end());
}

void block_book::give_back(block_id block) {
  auto& use = uses_[index_of(block)];
  DI_CHECK(use.fences > 0, "block {} is behind no fence", block.value);
  if (--use.fences == 0 && use.tables == 0) --promised_;
}

bool block_book::settle(step_id settled) {
  std::ptrdiff_t blocks = 0;
  const auto end = std::find_if(parked_.begin(), parked_.end(),
                                [&](const parked_entry& it) { return it.fence > settled; });
  for (auto it = parked_.begin(); it != end; ++it) {
    blocks += it->blocks;
    parked_slots_ -= it->slots;
  }
  const auto behind = parked_blocks_.begin() + blocks;
  std::for_each(parked_blocks_.begin(), behind, [this](block_id block) { give_back(block); });
  const bool any = end != parked_.begin();
  parked_blocks_.erase(parked_blocks_.begin(), behind);
  parked_.erase(parked_.begin(), end);
  return any;
}

void block_book::reset() {
  *this = block_book(static_cast<std::int32_t>(uses_.size()), static_cast<std::int32_t>(slots_));
}

std::int64_t block_book::exclusive(std::span<const block_id> blocks) const {
  return std::count_if(blocks.begin(), blocks.end(),
                       [this](block_id block) { return tables_of(block) == 1; });
}

}  // namespace deepinfer
