/// Rules that hold of a rank whenever nothing is on its way between its actors and its host is not
/// busy: what the player looks at before time goes on.
///
/// Recounted from outside of the engine: from each sequence's record, not from the scheduler's own
/// decision, so that a loop that forgot to look is found. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/kv_pool.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

/// A counter of the books.
struct named_count {
  std::string_view name;  ///< a literal
  std::int64_t value = 0;
  std::int32_t sequence = 0;  ///< whose it is; 0: of all
};

/// Every counter that a scheduler and its pool keep. `sequences`: ids 1 to so many are looked up.
std::vector<named_count> counts_of(const scheduler_core& core, const kv_pool& pool,
                                   std::int32_t sequences);

/// The first counter below zero, as text: the property counter_negative.
std::optional<std::string> negative_counter(const std::vector<named_count>& counts);

/// A row that could be planned although the scheduler has gone to sleep with a place free in its
/// pipeline, as text: the property idle_while_runnable. Where the rules leave a choice it says
/// nothing. The caller knows that nothing keeps the scheduler from launching.
std::optional<std::string> runnable_row(const scheduler_core& core, const kv_pool& pool,
                                        std::int32_t sequences);

/// What a sleeping scheduler with steps in flight can be waiting for.
struct sleep_view {
  std::int32_t inflight_steps = 0;
  bool is_device_idle = false;     ///< nothing is enqueued, and all that ended was told
  bool may_be_lost = false;        ///< a completion: then the watchdog is armed
  std::int64_t oldest_age_ns = 0;  ///< of the steps in flight, since it was launched
  std::int64_t watchdog_ns = 0;
};

/// The property asleep_with_work_in_flight, as text.
std::optional<std::string> endless_sleep(const sleep_view& it);

}  // namespace deepinfer
