/// Whether plans give away blocks and slots that a launched step may still use.
///
/// Follows the leases that plans imply: a block belongs to the sequence whose plan appended it
/// last, until the newest launched step with a row of that sequence has been collected, or the
/// newest before the row that shows that the block has left its table. A step that
/// failed does no harm, though it is never collected: so a reuse is an error at once if that step
/// has ended, and else when it goes on running (hash_work::suspect). Of a block that several
/// sequences share, only the newest is known. Host thread. Source: scenarios 6.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "messages/plan.hpp"
#include "runtime/model/hash_canary.hpp"
#include "runtime/model/hash_work.hpp"
#include "runtime/model/step_runner.hpp"

namespace deepinfer {

class hash_fence {
public:
  using ring = std::span<const std::shared_ptr<hash_work>>;

  hash_fence(const runner_config& config, canary_log* log);

  /// The plan is launched next; `launched`: works that may not have been collected.
  void check(const step_plan& plan, ring launched);

  void reset();

private:
  struct user {
    slot_id slot{-1};
    seq_id sequence;
    std::uint32_t epoch = 0;

    friend bool operator==(const user&, const user&) = default;
  };
  struct slot_use {
    user holder;
    step_id newest;  ///< launched with a row of the holder
    std::vector<block_id> table;
  };
  struct block_use {
    user holder;
    step_id left;  ///< newest with the block in the holder's table; 0: it still is
  };

  bool is_block(block_id block) const {
    return 0 <= block.value && block.value < std::ssize(blocks_);
  }
  void check_user(const step_plan& plan, const user& next, const user& before, step_id newest,
                  ring launched, std::string_view what, std::int32_t number);
  void check_blocks(const step_plan& plan, std::size_t row, std::int32_t hits, slot_use& mine,
                    ring launched);
  void cut_table(slot_use& mine, std::int32_t end);

  runner_config config_;
  canary_log* log_;
  std::vector<block_use> blocks_;
  std::vector<slot_use> slots_;
};

}  // namespace deepinfer
