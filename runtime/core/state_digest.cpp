// What each core adds to the digest of a state: all that a later decision reads.
#include "runtime/core/state_digest.hpp"

#include <algorithm>

#include "runtime/core/kv_pool.hpp"
#include "runtime/core/release_queue.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

void seq_ledger::describe(state_digest& out) const {
  for (const auto number : {prompt_, committed_, known_, capacity_}) out.add(number);
  out.add(epoch_);
  out.add_exactly(newest_);  // rows that lack tokens take turns by it
  out.add(count_);
  for (std::int32_t i = 0; i < count_; ++i) {
    const auto& it = row(i);
    out.add(it.step);
    out.add(it.epoch);
    for (const auto number :
         {static_cast<std::int32_t>(it.kind), it.width, it.yields_max, it.yields_min})
      out.add(number);
  }
}

// How often a block is in use follows from the tables and from what is parked.
void block_book::describe(state_digest& out) const {
  for (const auto number : {tabled_, promised_, held_slots_, parked_slots_}) out.add(number);
  for (const auto& entry : parked_) {
    out.add(entry.fence);
    out.add(entry.blocks);
    out.add(entry.slots);
  }
  for (const auto block : parked_blocks_) out.add(block);
}

void scheduler_core::describe(const sequence_state& sequence, state_digest& out) const {
  out.add(sequence.id());
  out.add(static_cast<std::int32_t>(sequence.phase));
  sequence.ledger.describe(out);
  out.add(sequence.fill_end);
  out.add(sequence.outputs);
  out.add(sequence.stop.outputs());
  out.add(sequence.lease.blocks());
  out.add(sequence.lease.has_slot());
  if (sequence.lease.has_slot()) out.add(sequence.lease.slot());
  out.add(sequence.started > 0);
  out.add(sequence.last.step.value == 0 ? 0 : sequence.last.step.value < launched_ ? 1 : 2);
  out.add(sequence.last.epoch);
  out.add(sequence.last.row);
  for (const bool flag : {sequence.last.yields, sequence.has_emitted, sequence.is_held,
                          sequence.lookup_stamp == index_stamp_})
    out.add(flag);
  out.add(sequence.retries);
  out.add(static_cast<std::int32_t>(sequence.ended_by));
  out.add(static_cast<std::int32_t>(sequence.lookup));
  out.add_exactly(sequence.waits_first);
  out.add_exactly(sequence.waits_last);
  out.add(std::uint64_t{sequence.published.keys.size()});
  out.add(sequence.published.pending);
  out.add(sequence.published.settled);
  out.add(sequence.closed_gate);
}

void scheduler_core::describe(state_digest& out) const {
  for (const auto number : {depth_, in_flight(), ended_, preempted_}) out.add(number);
  for (const bool flag : {is_paused_, is_draining_, waits_for_credit_, lacks_room_, has_made_room_})
    out.add(flag);
  const auto alive = by_arrival([](const auto&) { return true; });
  out.add(std::uint64_t{alive.size()});
  for (const auto* sequence : alive) describe(*sequence, out);
  for (const auto& [place, sequence] : queue_) out.add(sequence->id());
  for (const auto* group : {&running_, &retiring_}) {
    out.add(std::uint64_t{group->size()});
    for (const auto* sequence : *group) out.add(sequence->id());
  }
  const auto& policy = config_.policy;
  out.add(std::min<std::int64_t>(
    prefill_run_, longest_prefill_run(policy.min_decode_gap, policy.max_prefill_run)));
  out.add(std::min<std::int64_t>(decode_run_, policy.min_decode_gap));
  book_.describe(out);
  out.add(credit_blocks_);
  out.add(credit_slots_);
  for (const auto number : {owed_blocks_, owed_slots_, shortfall_, claimed_}) out.add(number);
  for (const auto* sequence : running_) out.add(sequence->claimed);
  out.add(head_asked_);
  out.add(step_id{parked_fence_});
  for (const auto& it : failed_) {
    out.add_exactly(it.first);
    out.add_exactly(it.last);
  }
  for (auto step = settled_ + 1; step <= launched_; ++step) {
    const auto& record = record_of(step);
    for (const auto* sequence : record.rows) out.add(sequence->id());
    out.add(record.epochs);
    out.add(record.tokens);
  }
}

void prefix_index::describe(state_digest& out) const {
  if (block_size_ == 0) return;
  for (const auto number : cached_.all()) out.add(block_id{number});
  for (const auto block : out.blocks_in_order()) {
    const auto& home = homes_[at(block.value)];
    out.add(home.is_named);
    if (!home.is_named) continue;
    out.add(home.key.high);
    out.add(home.key.low);
    out.add_exactly(home.pending);
  }
  out.add(spilled_.all());
  out.add(free_places_);
}

void kv_pool::describe(state_digest& out) const {
  out.add(free_blocks_);
  out.add(free_slots_);
  out.add(owed_blocks_);
  out.add(owed_slots_);
  index_.describe(out);
  for (const auto block : out.blocks_in_order()) out.add(references(block));
  for (const auto slot : out.slots_in_order()) out.add(bool{slot_held_[index_of(slot)]});
}

void release_queue::describe(state_digest& out) const {
  for (const auto& entry : parked_) {
    out.add(entry.fence);
    out.add(entry.blocks);
    out.add(entry.slots);
  }
  out.add(settled_);
  out.add(suspect_.value_or(step_id{}));
  out.add(proven_);
}

}  // namespace deepinfer
