/// Release collector: the shell over `release_queue` (DeferredRelease). Messages: protocol.hpp.
#pragma once

#include <optional>

#include "actors/protocol.hpp"
#include "runtime/core/release_queue.hpp"

namespace deepinfer {

struct release_collector_state {
  static inline const char* name = "release_collector";
  std::uint64_t messages = 0;  ///< sent for steps
  std::optional<release_queue> queue;
  step_id settled;  ///< newest settled step it was told of
};

release_collector_actor::behavior_type
release_collector(release_collector_actor::stateful_pointer<release_collector_state> self,
                  rank_id rank, kv_allocator_actor allocator);

}  // namespace deepinfer
