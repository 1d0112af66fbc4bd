/// Who starts next, and whether there is room for a whole life: the waiting queue and the book of
/// promises.
///
/// Admission promises a sequence the blocks of its longest possible life. The sum of promises plus
/// what is parked behind unsettled fences never exceeds the pool, so started sequences always get
/// their blocks without preemption. A sequence that has launched its last step is not active [I07]:
/// it counts for its promise until it ends, not against `max_num_seqs`.
/// Errors: DI_CHECK for a broken caller. Single-threaded.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>

#include "runtime/base/ids.hpp"

namespace deepinfer {

struct sequence_state;

/// Waiting sequences by priority (higher first), then arrival. The caller bounds its size.
class admission_queue {
public:
  /// Place in the queue; smaller goes first.
  struct key {
    std::int64_t falling_priority = 0;  ///< minus the request's priority
    std::uint64_t arrival = 0;          ///< unique

    friend auto operator<=>(const key&, const key&) = default;
  };
  using entries = std::map<key, sequence_state*>;

  static key key_of(std::int32_t priority, std::uint64_t arrival) {
    return {-std::int64_t{priority}, arrival};
  }

  void push(key place, sequence_state& sequence);
  void remove(key place);

  std::int64_t size() const { return static_cast<std::int64_t>(waiting_.size()); }
  bool is_empty() const { return waiting_.empty(); }
  entries::const_iterator begin() const { return waiting_.begin(); }
  entries::const_iterator end() const { return waiting_.end(); }
  void clear() { waiting_.clear(); }

private:
  entries waiting_;
};

/// Blocks promised to started sequences, and blocks and slots of ended ones whose fence has not
/// settled.
class promise_book {
public:
  promise_book(std::int64_t blocks, std::int64_t slots) : blocks_(blocks), slots_(slots) {}

  /// Blocks that may still be promised: total - promised - parked.
  std::int64_t unpromised() const { return blocks_ - promised_ - parked_blocks_; }
  /// Slots that no started sequence and no unsettled fence holds.
  std::int64_t free_slots() const { return slots_ - held_slots_ - parked_slots_; }

  /// A sequence starts: a slot and so many blocks for its whole life.
  void promise(std::int64_t blocks);
  /// It has ended.
  void keep(std::int64_t blocks);
  /// What it held is parked behind `fence`, which has not settled.
  void park(step_id fence, std::int64_t blocks, std::int64_t slots);
  /// Entries up to `settled` are on their way back. True: there were some.
  bool settle(step_id settled);
  /// All promises, holds and entries are forgotten, as after a rank's restart.
  void reset();

  std::int64_t promised() const { return promised_; }
  std::int64_t held_slots() const { return held_slots_; }
  std::int64_t parked_blocks() const { return parked_blocks_; }
  std::int64_t parked_slots() const { return parked_slots_; }

private:
  struct parked_entry {
    step_id fence;
    std::int64_t blocks, slots;
  };

  std::int64_t blocks_;
  std::int64_t slots_;
  std::int64_t promised_ = 0;
  std::int64_t held_slots_ = 0;
  std::int64_t parked_blocks_ = 0;
  std::int64_t parked_slots_ = 0;
  std::deque<parked_entry> parked_;  ///< fences do not fall; at most `depth` distinct ones
};

}  // namespace deepinfer
