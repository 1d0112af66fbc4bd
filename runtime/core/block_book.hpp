/// Which of a rank's blocks and slots its sequences hold, as far as the scheduler knows: what is in
/// tables, what waits behind a fence, and so what the pool could still give.
///
/// A block may be in several tables (a shared prefix) and behind several fences; it is counted
/// once. `promised` blocks are in no table any more and come back when their fence has settled:
/// whoever lacks room waits for them instead of hunting another victim [I14].
/// Blocks the pool holds for the prefix cache are outside of this book: they can be had back.
/// Errors: DI_CHECK for a broken caller. Single-threaded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/ids.hpp"

namespace deepinfer {

class state_digest;

class block_book {
public:
  block_book(std::int32_t blocks, std::int32_t slots);

  /// A block enters a table.
  void enter(block_id block);
  /// Blocks leave their table and slots their sequence, behind `fence`. A fence that has settled
  /// gives them back at once.
  void park(step_id fence, std::span<const block_id> blocks, std::int64_t slots, step_id settled);
  /// Entries up to `settled` are on their way back. True: there were some.
  bool settle(step_id settled);
  void hold_slot() { ++held_slots_; }

  /// Everything is forgotten, as after a rank's restart.
  void reset();

  /// Blocks in tables or behind fences.
  std::int64_t held() const { return tabled_ + promised_; }
  /// Blocks in tables.
  std::int64_t tabled() const { return tabled_; }
  /// Blocks behind fences and in no table.
  std::int64_t promised() const { return promised_; }
  /// Of `blocks`, which one sequence holds, those that nobody else has in a table.
  std::int64_t exclusive(std::span<const block_id> blocks) const;

  std::int64_t held_slots() const { return held_slots_; }
  std::int64_t parked_slots() const { return parked_slots_; }
  /// Slots that no started sequence and no unsettled fence holds.
  std::int64_t free_slots() const { return slots_ - held_slots_ - parked_slots_; }
  std::int32_t tables_of(block_id block) const { return uses_[index_of(block)].tables; }
  void describe(state_digest& out) const;

private:
  struct block_use {
    std::int32_t tables = 0;
    std::int32_t fences = 0;
  };
  struct parked_entry {
    step_id fence;
    std::int64_t blocks, slots;
  };

  std::size_t index_of(block_id block) const;
  void give_back(block_id block);

  std::vector<block_use> uses_;
  std::int64_t slots_;
  std::int64_t tabled_ = 0;
  std::int64_t promised_ = 0;
  std::int64_t held_slots_ = 0;
  std::int64_t parked_slots_ = 0;
  std::vector<parked_entry> parked_;     ///< fences do not fall
  std::vector<block_id> parked_blocks_;  ///< of all entries, in their order
};

}  // namespace deepinfer
