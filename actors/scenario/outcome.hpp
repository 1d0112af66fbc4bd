/// What one run of a case left behind.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "actors/scenario/audit.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/trace_ring.hpp"

namespace deepinfer {

struct run_outcome {
  audit_log log;
  /// What the player saw itself: canaries, live gauges, a run that got stuck.
  std::vector<violation> violations{};
  std::optional<error> refused{};   ///< start-up failed; `param` names the setting
  std::vector<step_trace> trace{};  ///< of every settled step, rank by rank
  std::int64_t end_us = 0;
};

}  // namespace deepinfer
