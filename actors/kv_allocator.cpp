#include "actors/kv_allocator.hpp"

namespace deepinfer {
namespace {

using pointer = kv_allocator_actor::stateful_pointer<kv_allocator_state>;

void hand_over(pointer self, kv_grant granted) {
  if (granted.blocks.empty() && granted.slots.empty()) return;
  ++self->state.messages;
  tell(self, self->state.owner, std::move(granted));
}

}  // namespace

kv_allocator_actor::behavior_type kv_allocator(pointer self, kv_pool_config config) {
  auto& pool = self->state.pool.emplace(config);
  return {
    [self, &pool](const kv_reserve& want) {
      self->state.owner = caf::actor_cast<scheduler_actor>(self->current_sender());
      hand_over(self, pool.reserve(want));
    },
    [self, &pool](const kv_release& done) { hand_over(self, pool.release(done)); },
    [self, &pool](stats_atom) {
      node_stats stats;
      stats.kv_blocks_total = pool.total_blocks();
      stats.kv_blocks_free = pool.free_blocks();
      stats.slots_total = pool.total_slots();
      stats.slots_free = pool.free_slots();
      stats.step_messages = self->state.messages;
      return stats;
    },
  };
}

}  // namespace deepinfer
