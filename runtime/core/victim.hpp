/// Whom preemption takes: the order of sacrifice, as pure comparisons.
///
/// Errors: none.
#pragma once

#include <cstdint>

#include "runtime/core/scheduler_config.hpp"

namespace deepinfer {

/// What the rules look at.
struct victim_candidate {
  std::int64_t priority = 0;    ///< higher: more important
  std::uint64_t arrival = 0;    ///< unique
  std::int64_t outputs = 0;     ///< emitted
  std::int64_t recompute = 0;   ///< tokens that would have to be computed again
  std::int64_t blocks = 0;      ///< gained if it goes
  std::int32_t references = 0;  ///< launched steps that name it
  bool is_held = false;         ///< nobody takes what it gives: it goes before any other
};

/// Does `a` go before `b`? A strict order: no two candidates with different arrivals are equal.
bool goes_first(victim_rule rule, const victim_candidate& a, const victim_candidate& b);

}  // namespace deepinfer
