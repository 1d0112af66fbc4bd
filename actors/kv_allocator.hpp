/// KV allocator: the shell over `kv_pool`. Messages: protocol.hpp.
#pragma once

#include <optional>

#include "actors/protocol.hpp"
#include "actors/rank_hooks.hpp"
#include "runtime/base/metrics.hpp"
#include "runtime/core/kv_pool.hpp"

namespace deepinfer {

struct kv_allocator_state {
  static inline const char* name = "kv_allocator";

  ~kv_allocator_state() {
    if (watch) watch->on_pool_gone();
  }

  std::uint64_t messages = 0;  ///< sent for steps
  std::optional<kv_pool> pool;
  scheduler_actor owner;  ///< who reserves: the rank's scheduler
  rank_watch* watch = nullptr;
  metrics* counts = nullptr;
  std::int64_t evictions = 0;  ///< counted so far
};

kv_allocator_actor::behavior_type
kv_allocator(kv_allocator_actor::stateful_pointer<kv_allocator_state> self, kv_pool_config config,
             rank_watch* watch, metrics* counts = nullptr);

}  // namespace deepinfer
