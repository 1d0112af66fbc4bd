/// KV blocks, device slots and prefixes on their way between scheduler, release collector and
/// allocator.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/ids.hpp"

namespace deepinfer {

/// Names the ids of a prefix that ends at a block edge: a hash chain over its full blocks, salted
/// by tenant. Equal keys are only a hint: ids are compared before a block is shared.
struct prefix_key {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend bool operator==(const prefix_key&, const prefix_key&) = default;
};

/// Which cached blocks can a sequence begin with?
struct prefix_lookup {
  seq_id sequence;
  std::uint32_t epoch = 0;
  std::shared_ptr<const std::vector<token_id>> ids;  ///< what it knows
  std::vector<prefix_key> keys;  ///< of its first blocks, as many as it may be given
};

/// Blocks whose contents may be shared from now on. Columns; one entry per block.
struct prefix_entries {
  std::vector<block_id> blocks;
  std::vector<prefix_key> keys;
  std::vector<token_id> ids;  ///< block_size of each
  /// The launched step that completes the block: whoever is launched behind it may read the block.
  /// 0: it has settled; said again of an entry that was pending, this confirms it.
  std::vector<step_id> pending;

  void clear() {
    blocks.clear();
    keys.clear();
    ids.clear();
    pending.clear();
  }
};

/// scheduler -> kv_allocator, at most once a turn. Asks for credit ahead of need, tied to no step
/// or row. Answer: kv_grant, with fewer if the pool is short, taken at a later poll; the rest stays
/// owed. The all-or-nothing rule [I09] belongs to the scheduler's plan over the credit it holds.
/// The allocator takes `publish`, `retract` and `forget` before it looks anything up, and grants
/// last.
struct kv_reserve {
  rank_id rank;
  std::int32_t blocks = 0;  ///< wanted
  std::int32_t slots = 0;   ///< wanted
  /// A named shortfall: so many cached blocks may be given up for what is owed.
  std::int32_t evict = 0;
  bool must_answer = false;  ///< somebody waits for the grant, also for an empty one
  prefix_entries publish{};
  std::vector<step_id> retract{};  ///< pending entries of these steps are void: the steps failed
  /// A step that moved blocks to or from the host tier has failed: what it moved is unknown, and so
  /// is what was moved on from there. Every name is void.
  bool forget = false;
  std::vector<prefix_lookup> lookups{};
};

/// A block's contents on their way between the device and the host tier of the prefix cache.
struct block_move {
  block_id block;
  std::int32_t host = 0;  ///< place in the host tier
  bool to_host = false;

  friend bool operator==(const block_move&, const block_move&) = default;
};

/// Cached blocks for the beginning of a sequence; it holds one reference of each. An answer comes
/// to every lookup, also without blocks.
struct prefix_hit {
  seq_id sequence;
  std::uint32_t epoch = 0;
  std::vector<block_id> blocks;  ///< in table order
  /// Oldest and newest launched step that the blocks wait for; 0: none.
  step_id pending_first, pending_last;
};

/// kv_allocator -> scheduler. `moves` belong to the next step that is launched, in this order.
struct kv_grant {
  std::vector<block_id> blocks;
  std::vector<slot_id> slots;
  std::vector<prefix_hit> hits{};
  std::vector<block_move> moves{};
  bool has_forgotten = false;  ///< the answer to `forget`: hits told before it are void

  bool is_empty() const {
    return blocks.empty() && slots.empty() && hits.empty() && moves.empty() && !has_forgotten;
  }
};

/// scheduler -> release_collector, at most once a step. What a finished, aborted or preempted
/// sequence held, parked behind `fence`, the newest launched step that names it; and how far steps
/// have settled, so that older entries may leave [I18].
struct lease_return {
  rank_id rank;
  step_id settled;
  struct parked {
    step_id fence;
    std::vector<block_id> blocks;  ///< in table order
    std::vector<slot_id> slots;
  };
  std::vector<parked> entries;
};

/// release_collector -> kv_allocator: nothing launched reads these any more. Blocks of a request
/// come deepest first: so they are evicted.
struct kv_release {
  rank_id rank;
  std::vector<block_id> blocks;
  std::vector<slot_id> slots;
};

}  // namespace deepinfer
