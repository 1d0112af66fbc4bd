/// Random scenarios for the product's actors, and what playing them has met.
///
/// A world is a function of its seed alone: engine, drafts, device, faults, requests and a script
/// of aborts, preemptions, pauses, flushes and changed settings; 150 requests, of which eight or
/// more want to run at a time. In half of the worlds they want more blocks than the pool has.
/// Errors: none.
#pragma once

#include <cstdint>
#include <string>

#include "actors/scenario/audit.hpp"
#include "config/scenario.hpp"

namespace deepinfer::test {

/// Passes check_engine; one case, without a matrix.
scenario random_world(std::uint64_t seed);

/// What worlds have met, so that a test can tell they were no empty ones.
struct world_counts {
  std::int64_t worlds = 0, steps = 0, rows = 0;
  std::int64_t live = 0;  ///< sequences started and not ended, summed over launched steps
  std::int64_t requests = 0, preemptions = 0, aborts = 0, failed_steps = 0;
  std::int64_t hits = 0;      ///< requests that have ended and started from cached blocks
  std::int64_t deferred = 0;  ///< blocks given up while a launched step named their sequence
  std::int64_t reuses = 0;    ///< of these, taken again by a later launch
  std::int64_t overruns = 0;  ///< rows settled behind the end of their request
  std::int64_t stopped = 0, by_length = 0, without_room = 0;

  void add(const audit_log& log);
  std::string text() const;
};

}  // namespace deepinfer::test
