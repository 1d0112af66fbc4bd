#include "actors/release_collector.hpp"

namespace deepinfer {
namespace {

using pointer = release_collector_actor::stateful_pointer<release_collector_state>;

void hand_over(pointer self, const kv_allocator_actor& allocator, kv_release freed) {
  if (freed.blocks.empty() && freed.slots.empty()) return;
  ++self->state.messages;
  tell(self, allocator, std::move(freed));
}

}  // namespace

release_collector_actor::behavior_type release_collector(pointer self, rank_id rank,
                                                         kv_allocator_actor allocator) {
  auto& queue = self->state.queue.emplace(rank);
  return {
    [self, allocator, &queue](const lease_return& back) {
      self->state.settled = back.settled;
      hand_over(self, allocator, queue.take(back));
    },
    [&queue](quarantine_atom, step_id step) { queue.quarantine(step); },
    [self, allocator, &queue](proven_atom, step_id step) {
      queue.prove(step);
      // What the quarantine alone held leaves now: no other lease_return may ever come.
      hand_over(self, allocator, queue.drain(self->state.settled));
    },
    [self, &queue](stats_atom) {
      node_stats stats;
      stats.deferred_blocks = queue.parked_blocks();
      stats.step_messages = self->state.messages;
      return stats;
    },
  };
}

}  // namespace deepinfer
