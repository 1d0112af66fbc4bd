/// What one run of a case left behind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/scenario/audit.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

struct run_outcome {
  audit_log log;
  /// What the player saw itself: canaries, live gauges, a run that got stuck.
  std::vector<violation> violations{};
  std::optional<error> refused{};  ///< start-up failed; `param` names the setting
  std::string trace{};             ///< step trace in Chrome's format
  std::int64_t end_us = 0;
};

}  // namespace deepinfer
