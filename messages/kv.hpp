/// KV blocks and device slots on their way between scheduler, release collector and allocator.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/ids.hpp"

namespace deepinfer {

/// scheduler -> kv_allocator. Asks for credit ahead of need, tied to no step or row.
/// Answer: kv_grant, with fewer if the pool is short, taken at a later poll. The all-or-nothing
/// rule [I09] belongs to the scheduler's plan over the credit it holds.
struct kv_reserve {
  rank_id rank;
  std::int32_t blocks = 0;  ///< wanted
  std::int32_t slots = 0;   ///< wanted
  bool may_evict = false;   ///< a named shortfall: cached blocks may be given up for it
};

/// kv_allocator -> scheduler.
struct kv_grant {
  std::vector<block_id> blocks;
  std::vector<slot_id> slots;
};

/// scheduler -> release_collector, at most once a step. What a finished, aborted or preempted
/// sequence held, parked behind `fence`, the newest launched step that names it; and how far steps
/// have settled, so that older entries may leave [I18].
struct lease_return {
  rank_id rank;
  step_id settled;
  struct parked {
    step_id fence;
    std::vector<block_id> blocks;
    std::vector<slot_id> slots;
  };
  std::vector<parked> entries;
};

/// release_collector -> kv_allocator: nothing launched reads these any more.
struct kv_release {
  rank_id rank;
  std::vector<block_id> blocks;
  std::vector<slot_id> slots;
};

}  // namespace deepinfer
