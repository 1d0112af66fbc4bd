/// The policies of a rank's scheduler, as the settings say them.
#pragma once

#include "config/engine_settings.hpp"
#include "runtime/core/scheduler_config.hpp"

namespace deepinfer {

scheduler_policy policy_of(const step_settings& engine);

}  // namespace deepinfer
