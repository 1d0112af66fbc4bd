/// worker -> device_gate and back. Local only: the work is a pointer.
#pragma once

#include <memory>

#include "runtime/base/device_work.hpp"

namespace deepinfer {

/// Launches one step. Answer: step_done when its last phase has ended; an error when the watchdog
/// ran out, which is not a completion (its leases stay quarantined).
struct submit_step {
  std::shared_ptr<device_work> work;
};

struct step_done {
  step_id step;
  device_status status;
  phase_times times;
};

}  // namespace deepinfer
