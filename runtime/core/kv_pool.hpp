/// Free lists and reference counts of one rank's KV blocks and device slots.
///
/// A grant takes truly free blocks only. What a reserve could not be given stays owed: the next
/// release pays it first, so a scheduler that was told "fewer" need not ask again.
/// Free lists are stacks (last in, first out): the block freed last is the likeliest to be in a
/// cache, and reusing it at once shows a wrong lifetime in tests instead of hiding it. A fresh pool
/// hands out 0, 1, 2, ...
///
/// Owns [I12] for the pool: free + held = total, after every call. A release of something not held
/// is a DI_CHECK that names the id. Single-threaded; allocates nothing but the grants it returns.
#pragma once

#include <cstdint>
#include <vector>

#include "messages/kv.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

struct kv_pool_config {
  rank_id rank;
  std::int32_t num_kv_blocks = 0;
  std::int32_t state_slots = 0;
};

class kv_pool {
public:
  explicit kv_pool(const kv_pool_config& config);

  /// What is free of `want`, at most what is wanted. The rest is owed on top of what was owed.
  [[nodiscard]] kv_grant reserve(const kv_reserve& want);

  /// Takes back one reference of each; what thereby becomes free first pays what is owed. The grant
  /// returned must reach the scheduler if it is not empty.
  [[nodiscard]] kv_grant release(const kv_release& done);

  /// One more reference to a held block (a table that shares it).
  void share(block_id block);

  /// Everything is free and nothing owed, as after a rank's restart.
  void reset();

  std::int64_t total_blocks() const { return static_cast<std::int64_t>(block_refs_.size()); }
  std::int64_t total_slots() const { return static_cast<std::int64_t>(slot_held_.size()); }
  std::int64_t free_blocks() const { return static_cast<std::int64_t>(free_blocks_.size()); }
  std::int64_t free_slots() const { return static_cast<std::int64_t>(free_slots_.size()); }
  std::int64_t held_blocks() const { return total_blocks() - free_blocks(); }
  std::int64_t held_slots() const { return total_slots() - free_slots(); }
  std::int64_t owed_blocks() const { return owed_blocks_; }
  std::int64_t owed_slots() const { return owed_slots_; }
  std::int32_t references(block_id block) const;

  /// Each block is either free once or held; the same for slots. O(total).
  void check_invariants() const;

private:
  kv_grant pay();
  std::size_t index_of(block_id block) const;
  std::size_t index_of(slot_id slot) const;

  rank_id rank_;
  std::vector<std::int32_t> block_refs_;  ///< 0: free
  std::vector<bool> slot_held_;
  std::vector<block_id> free_blocks_;  ///< stack, next one at the back
  std::vector<slot_id> free_slots_;
  std::int64_t owed_blocks_ = 0;
  std::int64_t owed_slots_ = 0;
};

}  // namespace deepinfer
