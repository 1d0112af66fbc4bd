/// Runs a checkpoint in `exact` and in another numeric mode over a fixed text and compares the
/// logits of every position.
#pragma once

#include <string>

#include "config/engine_settings.hpp"
#include "runtime/base/error.hpp"
#include "runtime/model/logit_error.hpp"
#include "runtime/model/step_runner.hpp"

namespace deepinfer {

/// Loads the model twice, one after the other. Errors: those of loading.
result<logit_error> measure_numeric(const std::string& directory, numeric_mode mode,
                                    const step_settings& settings);

}  // namespace deepinfer
