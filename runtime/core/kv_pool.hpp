/// One rank's KV blocks and device slots: free lists, reference counts, and the prefix cache.
///
/// A block is free, held (it has references) or cached (it has none, but a settled name: see
/// prefix_index). A grant takes truly free blocks only; cached ones are given up, earliest
/// released first, for a shortfall that the reserve names (`evict`), and for a prefix that comes
/// back from the host tier: a pool in use has no free block, so it would never be hit otherwise.
/// What a reserve could not be given stays owed: the next release pays it first, so a scheduler
/// that was told "fewer" need not ask again.
/// Free lists are stacks (last in, first out): the block freed last is the likeliest to be in a
/// CPU's cache, and reusing it at once shows a wrong lifetime in tests instead of hiding it. A
/// fresh pool hands out 0, 1, 2, ...
///
/// `publish` names held blocks, so it must arrive before the release of their last reference: of
/// one turn, a scheduler sends its kv_reserve first and its lease_return second.
/// `moves` of a grant are in stream order: the block that a move to the host tier reads may be
/// granted, and the place that a move from it reads may be the target of a later one.
///
/// Owns [I12] for the pool: free + cached + held = total, after every call. A release of something
/// not held, and a name for it, is a DI_CHECK that names the id. Single-threaded; allocates nothing
/// but the grants it returns.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "messages/kv.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/core/prefix_index.hpp"

namespace deepinfer {

struct kv_pool_config {
  rank_id rank;
  std::int32_t num_kv_blocks = 0;
  std::int32_t state_slots = 0;
  std::int32_t block_size = 0;   ///< ids of a block; 0: no prefix cache
  std::int32_t host_blocks = 0;  ///< places of the host tier of the prefix cache
};

/// What has happened since the pool was made; a reset changes nothing here.
struct prefix_counters {
  std::int64_t query_tokens = 0;  ///< ids whose blocks were looked up
  std::int64_t hit_tokens = 0;    ///< those of them that were found
  std::int64_t other_ids = 0;     ///< lookups that met their key with other ids: misses
  std::int64_t evictions = 0;     ///< cached blocks given up
  std::int64_t spills = 0;        ///< those of them that moved to the host tier
  std::int64_t host_hits = 0;     ///< blocks that came back from there

  friend bool operator==(const prefix_counters&, const prefix_counters&) = default;
};

class kv_pool {
public:
  explicit kv_pool(const kv_pool_config& config);

  /// Takes `publish`, `retract`, `forget`, in this order; answers each lookup in order; then grants
  /// what is free of `want`, at most what is wanted. The rest is owed on top of what was owed, and
  /// up to `evict` cached blocks are given up for it.
  [[nodiscard]] kv_grant reserve(const kv_reserve& want);

  /// Takes back one reference of each; what thereby becomes free first pays what is owed. The grant
  /// returned must reach the scheduler if it is not empty.
  [[nodiscard]] kv_grant release(const kv_release& done);

  /// Forgets every prefix: cached blocks become free and pay what is owed, held ones are held.
  [[nodiscard]] kv_grant flush();

  /// Everything is free, nothing named and nothing owed, as after a rank's restart.
  void reset();

  std::int64_t total_blocks() const { return static_cast<std::int64_t>(block_refs_.size()); }
  std::int64_t total_slots() const { return static_cast<std::int64_t>(slot_held_.size()); }
  std::int64_t free_blocks() const { return static_cast<std::int64_t>(free_blocks_.size()); }
  std::int64_t cached_blocks() const { return index_.cached_blocks(); }
  std::int64_t free_slots() const { return static_cast<std::int64_t>(free_slots_.size()); }
  std::int64_t held_blocks() const { return total_blocks() - free_blocks() - cached_blocks(); }
  std::int64_t held_slots() const { return total_slots() - free_slots(); }
  std::int64_t owed_blocks() const { return owed_blocks_; }
  std::int64_t owed_slots() const { return owed_slots_; }
  std::int64_t host_entries() const { return index_.host_entries(); }
  const prefix_counters& counters() const { return counters_; }
  std::int32_t references(block_id block) const;
  /// Its contents have a settled name: without references it would be kept, not free.
  bool keeps(block_id block) const { return index_.is_named(block) && !index_.is_pending(block); }
  bool is_cached(block_id block) const { return index_.is_cached(block); }

  /// Each block is free once, cached or held; each slot free once or held. O(total).
  void check_invariants() const;
  void describe(state_digest& out) const;

private:
  void publish(const prefix_entries& entries);
  prefix_hit look_up(const prefix_lookup& lookup, std::vector<block_move>& moves);
  bool is_hit(const prefix_match& match, prefix_hit& hit, std::vector<block_move>& moves);
  void give_up_cached(std::vector<block_move>& moves, std::optional<std::int32_t> kept_place = {});
  void pay(kv_grant& out);
  block_id take_free_block();
  std::size_t index_of(block_id block) const;
  std::size_t index_of(slot_id slot) const;

  rank_id rank_;
  std::size_t block_size_;
  std::vector<std::int32_t> block_refs_;  ///< 0: free or cached
  std::vector<bool> slot_held_;
  std::vector<block_id> free_blocks_;  ///< stack, next one at the back
  std::vector<slot_id> free_slots_;
  prefix_index index_;
  std::int64_t owed_blocks_ = 0;
  std::int64_t owed_slots_ = 0;
  prefix_counters counters_;
};

}  // namespace deepinfer
