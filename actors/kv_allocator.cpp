#include "actors/kv_allocator.hpp"

namespace deepinfer {
namespace {

using pointer = kv_allocator_actor::stateful_pointer<kv_allocator_state>;

void hand_over(pointer self, kv_grant granted, bool must_answer = false) {
  auto& state = self->state;
  if (state.watch) state.watch->on_pool(*state.pool);
  const auto evictions = state.pool->counters().evictions;
  if (state.counts && evictions > state.evictions)
    state.counts->add(metric::prefix_evictions_total,
                      static_cast<double>(evictions - state.evictions));
  state.evictions = evictions;
  if (granted.is_empty() && !must_answer) return;
  ++state.messages;
  tell(self, state.owner, std::move(granted));
}

}  // namespace

kv_allocator_actor::behavior_type kv_allocator(pointer self, kv_pool_config config,
                                               rank_watch* watch, metrics* counts) {
  self->state.watch = watch;
  self->state.counts = counts;
  auto& pool = self->state.pool.emplace(config);
  return {
    [self, &pool](const kv_reserve& want) {
      self->state.owner = caf::actor_cast<scheduler_actor>(self->current_sender());
      hand_over(self, pool.reserve(want), want.must_answer);
    },
    [self, &pool](const kv_release& done) {
      if (self->state.watch) self->state.watch->on_release(done, pool);
      auto granted = pool.release(done);
      // What came back may have been kept in the cache while somebody waits for room: the scheduler
      // looks again, and says by name what may be given up for it.
      hand_over(self, std::move(granted), pool.owed_blocks() > 0);
    },
    [self, &pool](flush_atom) {
      hand_over(self, pool.flush());
      return true;
    },
    [self, &pool](stats_atom) {
      node_stats stats;
      stats.kv_blocks_total = pool.total_blocks();
      stats.kv_blocks_free = pool.free_blocks();
      stats.kv_blocks_cached = pool.cached_blocks();
      stats.prefix_host_hits = pool.counters().host_hits;
      stats.slots_total = pool.total_slots();
      stats.slots_free = pool.free_slots();
      stats.step_messages = self->state.messages;
      return stats;
    },
  };
}

}  // namespace deepinfer
