/// What one started sequence holds of its rank: blocks in table order, and a slot.
///
/// Neither copied nor moved, and never dropped while it holds anything: the only ways out are
/// `park_all` and `park_tail`, which pair what leaves with a fence for the release collector, and
/// `forget`, for a rank whose pool is reset. So nothing returns to a free list twice or without a
/// fence [I13][I17].
/// Errors: DI_CHECK.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "messages/kv.hpp"
#include "runtime/base/check.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

class sequence_lease {
public:
  sequence_lease() = default;
  sequence_lease(sequence_lease&&) = delete;
  sequence_lease& operator=(sequence_lease&&) = delete;
  ~sequence_lease() {
    DI_CHECK(is_empty(), "a lease of {} blocks, slot {}, was dropped", blocks_.size(), slot_.value);
  }

  /// Makes room for `blocks` in all, so that growing allocates nothing later.
  void reserve(std::int64_t blocks) { blocks_.reserve(static_cast<std::size_t>(blocks)); }

  void take_slot(slot_id slot) {
    DI_CHECK(!has_slot_, "slot {} taken, holds {}", slot.value, slot_.value);
    slot_ = slot;
    has_slot_ = true;
  }
  void append(block_id block) { blocks_.push_back(block); }

  std::span<const block_id> blocks() const { return blocks_; }
  std::int32_t block_count() const { return static_cast<std::int32_t>(blocks_.size()); }
  bool has_slot() const { return has_slot_; }
  slot_id slot() const { return slot_; }
  bool is_empty() const { return blocks_.empty() && !has_slot_; }

  /// The cached blocks a sequence begins with, in table order; nothing else may be held yet.
  void begin_with(std::vector<block_id> blocks) {
    DI_CHECK(blocks_.empty(), "{} blocks are held already", blocks_.size());
    blocks_ = std::move(blocks);
  }

  /// Everything, parked behind the newest launched step that names the sequence.
  lease_return::parked park_all(step_id fence) {
    lease_return::parked out{fence, std::exchange(blocks_, {}), {}};
    if (has_slot_) out.slots.push_back(slot_);
    has_slot_ = false;
    return out;
  }

  /// The blocks from ordinal `keep` on.
  lease_return::parked park_tail(step_id fence, std::int32_t keep) {
    DI_CHECK(0 <= keep && keep <= block_count(), "keep {} of {} blocks", keep, block_count());
    const auto cut = blocks_.begin() + keep;
    lease_return::parked out{fence, {cut, blocks_.end()}, {}};
    blocks_.erase(cut, blocks_.end());
    return out;
  }

  /// The rank is lost: its pool is reset as a whole.
  void forget() {
    blocks_.clear();
    has_slot_ = false;
  }

private:
  std::vector<block_id> blocks_;
  slot_id slot_;
  bool has_slot_ = false;
};

}  // namespace deepinfer
