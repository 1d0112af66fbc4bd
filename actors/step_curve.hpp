/// The step-time curve that confidence-scheduled verification decides by, measured at start.
///
/// The forward of decode rows at 1, 2, 4, ... query tokens, up to what a full batch with all its
/// drafts has; the median of some runs each. Own sequence state, which is gone when it returns.
/// Errors: those of model_session::make.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/base/error.hpp"
#include "runtime/core/verify_sizer.hpp"
#include "runtime/model/step_runner.hpp"
#include "runtime/model/weights.hpp"

namespace deepinfer {

result<std::shared_ptr<verify_sizer>>
measure_step_curve(std::shared_ptr<const model_weights> weights, const runner_config& sizes,
                   std::int32_t threads);

}  // namespace deepinfer
