#include "runtime/core/kv_pool.hpp"

#include <algorithm>
#include <span>

#include "runtime/base/check.hpp"
#include "runtime/core/mutant.hpp"

namespace deepinfer {
namespace {

const kv_pool_config& checked(const kv_pool_config& config) {
  DI_CHECK(config.num_kv_blocks > 0, "a pool of {} blocks", config.num_kv_blocks);
  DI_CHECK(config.state_slots > 0, "a pool of {} slots", config.state_slots);
  DI_CHECK(config.block_size >= 0, "blocks of {} ids", config.block_size);
  DI_CHECK(config.host_blocks >= 0, "a host tier of {} blocks", config.host_blocks);
  return config;
}

}  // namespace

kv_pool::kv_pool(const kv_pool_config& config)
  : rank_(checked(config).rank),
    block_size_(static_cast<std::size_t>(config.block_size)),
    index_({config.num_kv_blocks, config.host_blocks, config.block_size}) {
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
  index_.flush(free_blocks_);
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

block_id kv_pool::take_free_block() {
  const auto block = free_blocks_.back();
  free_blocks_.pop_back();
  auto& refs = block_refs_[index_of(block)];
  DI_CHECK(refs == 0, "free block {} is held", block.value);
  refs = 1;
  return block;
}

void kv_pool::pay(kv_grant& out) {
  if (out.blocks.empty())
    out.blocks.reserve(static_cast<std::size_t>(std::min(owed_blocks_, free_blocks())));
  for (; owed_blocks_ > 0 && !free_blocks_.empty(); --owed_blocks_)
    out.blocks.push_back(take_free_block());
  for (; owed_slots_ > 0 && !free_slots_.empty(); --owed_slots_) {
    const auto slot = free_slots_.back();
    free_slots_.pop_back();
    DI_CHECK(!slot_held_[index_of(slot)], "free slot {} is held", slot.value);
    slot_held_[index_of(slot)] = true;
    out.slots.push_back(slot);
  }
}

void kv_pool::publish(const prefix_entries& entries) {
  const auto count = entries.blocks.size();
  DI_CHECK(entries.keys.size() == count && entries.pending.size() == count,
           "{} blocks published with {} keys, {} steps", count, entries.keys.size(),
           entries.pending.size());
  DI_CHECK(entries.ids.size() == count * block_size_, "{} blocks of {} published with {} ids",
           count, block_size_, entries.ids.size());
  DI_CHECK(count == 0 || block_size_ > 0, "{} blocks published without a cache", count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto block = entries.blocks[i];
    DI_CHECK(block_refs_[index_of(block)] > 0, "block {} of rank {} was named, nobody holds it",
             block.value, rank_.value);
    index_.publish(block, entries.keys[i],
                   std::span(entries.ids).subspan(i * block_size_, block_size_),
                   entries.pending[i]);
  }
}

void kv_pool::give_up_cached(std::vector<block_move>& moves,
                             std::optional<std::int32_t> kept_place) {
  const auto evicted = index_.evict(kept_place);
  ++counters_.evictions;
  if (evicted.host) {
    ++counters_.spills;
    moves.push_back({evicted.block, *evicted.host, true});
  }
  free_blocks_.push_back(evicted.block);
}

bool kv_pool::is_hit(const prefix_match& match, prefix_hit& hit, std::vector<block_move>& moves) {
  if (match.found == prefix_found::in_block) {
    auto& refs = block_refs_[index_of(match.block)];
    if (mutant(13) && refs > 0) --refs;  // a shared block counted once
    if (++refs == 1) index_.hold(match.block);
    hit.blocks.push_back(match.block);
    if (match.pending != step_id{} && !mutant(23)) {  // 23: a hit waits for nothing
      const bool is_first = hit.pending_first == step_id{};
      hit.pending_first = is_first ? match.pending : std::min(hit.pending_first, match.pending);
      hit.pending_last = std::max(hit.pending_last, match.pending);
    }
    return true;
  }
  if (match.found == prefix_found::in_host && free_blocks() + cached_blocks() > 0) {
    if (free_blocks_.empty()) give_up_cached(moves, match.host);
    const auto block = take_free_block();
    index_.restore(match.host, block);
    if (!mutant(24)) moves.push_back({block, match.host, false});  // 24: nothing is copied
    ++counters_.host_hits;
    hit.blocks.push_back(block);
    return true;
  }
  counters_.other_ids += match.found == prefix_found::other_ids;
  return false;
}

prefix_hit kv_pool::look_up(const prefix_lookup& lookup, std::vector<block_move>& moves) {
  prefix_hit hit{lookup.sequence, lookup.epoch, {}, {}, {}};
  const auto count = lookup.keys.size();
  if (count == 0) return hit;
  DI_CHECK(block_size_ > 0, "a lookup of {} blocks without a cache", count);
  DI_CHECK(lookup.ids && lookup.ids->size() >= count * block_size_,
           "a lookup of {} blocks of {} with {} ids", count, block_size_,
           lookup.ids ? lookup.ids->size() : 0);
  const std::span<const token_id> ids(*lookup.ids);
  for (std::size_t i = 0; i < count; ++i) {
    const auto match = index_.find(lookup.keys[i], ids.subspan(i * block_size_, block_size_));
    if (!is_hit(match, hit, moves)) break;
  }
  counters_.query_tokens += static_cast<std::int64_t>(count * block_size_);
  counters_.hit_tokens += static_cast<std::int64_t>(hit.blocks.size() * block_size_);
  return hit;
}

kv_grant kv_pool::reserve(const kv_reserve& want) {
  DI_CHECK(want.rank == rank_, "rank {} asked the pool of rank {}", want.rank.value, rank_.value);
  DI_CHECK(want.blocks >= 0, "{} blocks wanted", want.blocks);
  DI_CHECK(want.slots >= 0, "{} slots wanted", want.slots);
  DI_CHECK(want.evict >= 0, "{} blocks to evict", want.evict);
  publish(want.publish);
  for (const auto step : want.retract) index_.retract(step);
  if (want.forget) index_.flush(free_blocks_);
  kv_grant out;
  out.has_forgotten = want.forget;
  out.hits.reserve(want.lookups.size());
  for (const auto& lookup : want.lookups) out.hits.push_back(look_up(lookup, out.moves));
  owed_blocks_ += want.blocks;
  owed_slots_ += want.slots;
  pay(out);
  for (auto i = want.evict; i > 0 && owed_blocks_ > 0 && cached_blocks() > 0; --i) {
    give_up_cached(out.moves);
    pay(out);
  }
  return out;
}

kv_grant kv_pool::release(const kv_release& done) {
  DI_CHECK(done.rank == rank_, "rank {} released to rank {}", done.rank.value, rank_.value);
  for (const auto block : done.blocks) {
    auto& refs = block_refs_[index_of(block)];
    DI_CHECK(refs > 0, "block {} of rank {} was freed twice", block.value, rank_.value);
    if (--refs == 0 && !index_.keep(block)) free_blocks_.push_back(block);
  }
  for (const auto slot : done.slots) {
    DI_CHECK(slot_held_[index_of(slot)], "slot {} of rank {} was freed twice", slot.value,
             rank_.value);
    slot_held_[index_of(slot)] = false;
    free_slots_.push_back(slot);
  }
  kv_grant out;
  pay(out);
  return out;
}

kv_grant kv_pool::flush() {
  index_.flush(free_blocks_);
  kv_grant out;
  pay(out);
  return out;
}

void kv_pool::check_invariants() const {
  std::int64_t held = 0;
  for (std::int32_t i = 0; i < total_blocks(); ++i) {
    const bool is_held = references({i}) > 0;
    held += is_held;
    DI_CHECK(!is_held || !is_cached({i}), "block {} is held and cached", i);
  }
  DI_CHECK(free_blocks() + cached_blocks() + held == total_blocks(),
           "{} blocks free, {} cached, {} held, {} in all", free_blocks(), cached_blocks(), held,
           total_blocks());
  const auto held_slots = std::count(slot_held_.begin(), slot_held_.end(), true);
  DI_CHECK(free_slots() + held_slots == total_slots(), "{} slots free, {} held, {} in all",
           free_slots(), held_slots, total_slots());
  for (const auto block : free_blocks_) {
    DI_CHECK(references(block) == 0, "free block {} is held", block.value);
    DI_CHECK(!index_.is_named(block), "free block {} has a name", block.value);
  }
  for (const auto slot : free_slots_)
    DI_CHECK(!slot_held_[index_of(slot)], "free slot {} is held", slot.value);
  index_.check_invariants();
}

}  // namespace deepinfer
