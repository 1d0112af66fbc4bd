/// Holds freed blocks and slots until every launched step that may touch them has settled:
/// DeferredRelease of the article. Fed by lease_return, emptied into kv_release.
///
/// Invariants: parked fences never decrease; nothing leaves before its fence has settled [I18];
/// empty at the first drain after the pipeline is [I20].
/// Quarantine: a step whose ticket timed out counts as settled for its requests, yet the device may
/// still run it. What it may touch has a fence at or behind it, so nothing with such a fence leaves
/// until a later completion on the same stream has proved it finished; if that never comes the rank
/// is lost, and the pool is reset instead.
/// Single-threaded; never reads a clock. Errors: DI_CHECK.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "messages/kv.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

class state_digest;

class release_queue {
public:
  explicit release_queue(rank_id rank) : rank_(rank) {}

  /// Parks `entry` behind its fence, the newest launched step that names what it holds. A fence
  /// older than the last parked one waits with it; one that has settled leaves at the next drain.
  void defer(lease_return::parked entry);

  /// Parks all entries of `back`, then drains to `back.settled`.
  kv_release take(lease_return back);

  /// Hands over, in parking order, everything whose fence is at or before `settled` and outside
  /// quarantine; of each entry the deepest block first, as if it had been released at once, so that
  /// cached blocks are evicted in the same order [I21]. `settled` never goes back.
  kv_release drain(step_id settled);

  /// The ticket of `step` ran out of time.
  void quarantine(step_id step);

  /// A completion of `step` has arrived: steps up to it have finished, as a stream runs in order.
  void prove(step_id step);

  bool has_quarantine() const { return suspect_.has_value(); }
  std::int64_t parked_blocks() const { return block_count_; }
  std::int64_t parked_slots() const { return slot_count_; }
  void describe(state_digest& out) const;

private:
  rank_id rank_;
  std::vector<lease_return::parked> parked_;  ///< in parking order; keeps its capacity
  std::int64_t block_count_ = 0;
  std::int64_t slot_count_ = 0;
  step_id settled_;
  step_id proven_;
  std::optional<step_id> suspect_;  ///< oldest step in quarantine
  step_id last_suspect_;            ///< newest one
};

}  // namespace deepinfer
