/// Names of cached prefixes: which block, or which place of the host tier, holds a key's KV; and
/// which cached block is evicted next.
///
/// A home is a block of the pool or a place of the host tier. A home has at most one name, a name
/// has one home. A name is *settled*, or *pending* on the launched step that completes its block:
/// then it may be hit by whoever is launched behind that step [I52], but is neither cached nor
/// spilled. Ids are kept with the name and compared on a hit: a key alone shares nothing [I48].
///
/// A block whose last reference goes and whose name is settled stays, *cached*. Cached blocks are
/// evicted in the order in which they came (kv_release lists a request's deepest first); one that
/// is hit leaves that order. With a host tier the name of an evicted block moves to a place there,
/// the oldest place if none is free, and back to a block when it is hit: a place is then free, so
/// no prefix is kept twice.
///
/// References and free lists are kv_pool's. Sized once; nothing here allocates afterwards.
/// Single-threaded. Errors: DI_CHECK.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "messages/kv.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/core/prefix_order.hpp"

namespace deepinfer {

class state_digest;

struct prefix_index_config {
  std::int32_t blocks = 0;
  std::int32_t host_blocks = 0;
  std::int32_t block_size = 0;  ///< ids of a block; 0: nothing is ever named
};

enum class prefix_found { nothing, other_ids, in_block, in_host };

struct prefix_match {
  prefix_found found = prefix_found::nothing;
  block_id block;         ///< in_block
  std::int32_t host = 0;  ///< in_host
  step_id pending;        ///< the step that completes the block; 0: settled
};

struct prefix_eviction {
  block_id block;
  std::optional<std::int32_t> host;  ///< where its contents are to go; none: forgotten
};

class prefix_index {
public:
  explicit prefix_index(const prefix_index_config& config);

  /// Names a held block. A key that has a home already keeps it and the block stays unnamed [I51],
  /// with two exceptions: the same block, which settles or waits for the later step; and a settled
  /// block, which takes the name over from the host tier.
  void publish(block_id block, prefix_key key, std::span<const token_id> ids, step_id pending);

  /// The step failed: what is pending on it loses its name. O(blocks).
  void retract(step_id step);

  prefix_match find(prefix_key key, std::span<const token_id> ids) const;

  /// The last reference of `block` is gone. True: it stays, cached; false: it has no name (now).
  bool keep(block_id block);

  /// A cached block was hit: it leaves the order of eviction.
  void hold(block_id block) { cached_.remove(block.value); }

  /// A place of the host tier was hit: its name moves to `block`, which has none. The place is free
  /// behind the move that the caller orders.
  void restore(std::int32_t host, block_id block);

  /// Gives up the block that was cached first; there must be one. What place `kept_place` of the
  /// host tier holds is not forgotten for it.
  prefix_eviction evict(std::optional<std::int32_t> kept_place = {});

  /// Nothing is named any more. Blocks that were cached are appended to `freed`, in their order.
  void flush(std::vector<block_id>& freed);

  std::int64_t cached_blocks() const { return cached_.size(); }
  std::int64_t host_entries() const { return spilled_.size(); }
  bool is_cached(block_id block) const { return cached_.contains(block.value); }
  bool is_named(block_id block) const { return homes_[at(block.value)].is_named; }
  bool is_pending(block_id block) const { return homes_[at(block.value)].pending.value > 0; }

  /// Each name is found where it is; cached blocks are settled; places are free or named. O(total).
  void check_invariants() const;
  void describe(state_digest& out) const;

private:
  struct home_name {
    prefix_key key;
    step_id pending;
    bool is_named = false;
    std::int32_t next = nowhere;  ///< of the same bucket
  };
  static constexpr std::int32_t nowhere = -1;

  static std::size_t at(std::int32_t number) { return static_cast<std::size_t>(number); }
  bool is_host(std::int32_t number) const { return number >= blocks_; }
  std::size_t bucket_of(prefix_key key) const { return key.low & (buckets_.size() - 1); }
  std::int32_t home_of(prefix_key key) const;
  std::span<const token_id> ids_of(std::int32_t number) const;
  bool has_ids(std::int32_t number, std::span<const token_id> ids) const;
  void name(std::int32_t number, prefix_key key, std::span<const token_id> ids, step_id pending);
  void forget(std::int32_t number);
  void forget_place(std::int32_t number);

  std::int32_t blocks_;
  std::int32_t block_size_;
  std::vector<home_name> homes_;       ///< [blocks + host_blocks]
  std::vector<token_id> ids_;          ///< [blocks + host_blocks, block_size]
  std::vector<std::int32_t> buckets_;  ///< first home of each; a power of two of them
  prefix_order cached_;                ///< blocks without references, by the time of the last one
  prefix_order spilled_;               ///< places of the host tier, counted from 0
  std::vector<std::int32_t> free_places_;  ///< stack, next one at the back
};

}  // namespace deepinfer
