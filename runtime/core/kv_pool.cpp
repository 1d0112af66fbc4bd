#include "runtime/core/kv_pool.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer {

kv_pool::kv_pool(const kv_pool_config& config) : rank_(config.rank) {
  DI_CHECK(config.num_kv_blocks > 0, "a pool of {} blocks", config.num_kv_blocks);
  DI_CHECK(config.state_slots > 0, "a pool of {} slots", config.state_slots);
  block_refs_.resize(static_cast<std::size_t>(config.num_kv_blocks));
  slot_held_.resize(static_cast<std::size_t>(config.state_slots));
  free_blocks_.reserve(block_refs_.size());
  free_slots_.reserve(slot_held_.size());
  reset();
}

void kv_pool::reset() {
  owed_blocks_ = owed_slots_ = 0;
  std::fill(block_refs_.begin(), block_refs_.end(), 0);
  std::fill(slot_held_.begin(), slot_held_.end(), false);
  free_blocks_.clear();
  free_slots_.clear();
  for (auto i = static_cast<std::int32_t>(block_refs_.size()); i-- > 0;)
    free_blocks_.push_back(block_id{i});
  for (auto i = static_cast<std::int32_t>(slot_held_.size()); i-- > 0;)
    free_slots_.push_back(slot_id{i});
}

std::size_t kv_pool::index_of(block_id block) const {
  DI_CHECK(0 <= block.value && block.value < static_cast<std::int32_t>(block_refs_.size()),
           "block {} of a pool of {}", block.value, block_refs_.size());
  return static_cast<std::size_t>(block.value);
}

std::size_t kv_pool::index_of(slot_id slot) const {
  DI_CHECK(0 <= slot.value && slot.value < static_cast<std::int32_t>(slot_held_.size()),
           "slot {} of a pool of {}", slot.value, slot_held_.size());
  return static_cast<std::size_t>(slot.value);
}

std::int32_t kv_pool::references(block_id block) const {
  return block_refs_[index_of(block)];
}

kv_grant kv_pool::pay() {
  kv_grant out;
  const auto blocks = std::min(owed_blocks_, free_blocks());
  for (std::int64_t i = 0; i < blocks; ++i) {
    const auto block = free_blocks_.back();
    free_blocks_.pop_back();
    DI_CHECK(block_refs_[index_of(block)] == 0, "free block {} is held", block.value);
    block_refs_[index_of(block)] = 1;
    out.blocks.push_back(block);
  }
  const auto slots = std::min(owed_slots_, free_slots());
  for (std::int64_t i = 0; i < slots; ++i) {
    const auto slot = free_slots_.back();
    free_slots_.pop_back();
    DI_CHECK(!slot_held_[index_of(slot)], "free slot {} is held", slot.value);
    slot_held_[index_of(slot)] = true;
    out.slots.push_back(slot);
  }
  owed_blocks_ -= blocks;
  owed_slots_ -= slots;
  return out;
}

kv_grant kv_pool::reserve(const kv_reserve& want) {
  DI_CHECK(want.rank == rank_, "rank {} asked the pool of rank {}", want.rank.value, rank_.value);
  DI_CHECK(want.blocks >= 0, "{} blocks wanted", want.blocks);
  DI_CHECK(want.slots >= 0, "{} slots wanted", want.slots);
  owed_blocks_ += want.blocks;
  owed_slots_ += want.slots;
  return pay();
}

kv_grant kv_pool::release(const kv_release& done) {
  DI_CHECK(done.rank == rank_, "rank {} released to rank {}", done.rank.value, rank_.value);
  for (const auto block : done.blocks) {
    auto& refs = block_refs_[index_of(block)];
    DI_CHECK(refs > 0, "block {} of rank {} was freed twice", block.value, rank_.value);
    if (--refs == 0) free_blocks_.push_back(block);
  }
  for (const auto slot : done.slots) {
    DI_CHECK(slot_held_[index_of(slot)], "slot {} of rank {} was freed twice", slot.value,
             rank_.value);
    slot_held_[index_of(slot)] = false;
    free_slots_.push_back(slot);
  }
  return pay();
}

void kv_pool::share(block_id block) {
  auto& refs = block_refs_[index_of(block)];
  DI_CHECK(refs > 0, "free block {} of rank {} was shared", block.value, rank_.value);
  ++refs;
}

void kv_pool::check_invariants() const {
  const auto held = std::count_if(block_refs_.begin(), block_refs_.end(),
                                  [](std::int32_t refs) { return refs > 0; });
  DI_CHECK(free_blocks() + held == total_blocks(), "{} blocks free, {} held, {} in all",
           free_blocks(), held, total_blocks());
  const auto held_slots = std::count(slot_held_.begin(), slot_held_.end(), true);
  DI_CHECK(free_slots() + held_slots == total_slots(), "{} slots free, {} held, {} in all",
           free_slots(), held_slots, total_slots());
  for (const auto block : free_blocks_)
    DI_CHECK(block_refs_[index_of(block)] == 0, "free block {} is held", block.value);
  for (const auto slot : free_slots_)
    DI_CHECK(!slot_held_[index_of(slot)], "free slot {} is held", slot.value);
}

}  // namespace deepinfer
