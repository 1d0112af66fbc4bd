/// Do an engine's settings contradict each other? Then it must refuse to start.
#pragma once

#include "config/scenario.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// Error `bad_config`; its `param` names the setting, e.g. "engine.max_num_batched_tokens", and its
/// message has both values. The model decides about settings that need experts or confidences.
result<void> check_engine(const scenario_engine& engine, const scenario_model& model = {});

}  // namespace deepinfer
