/// The answer of a device that computes nothing, for benches of the host: right in form, made by
/// rule.
///
/// A row gives from its fewest to its most tokens, one more with each step and row, then the fewest
/// again; so every number of accepted drafts comes up equally often. Each token, and each draft for
/// the row behind, is `made_token`. Vectors of `out` keep their capacity.
#pragma once

#include <cstdint>

#include "messages/plan.hpp"

namespace deepinfer {

inline constexpr token_id made_token = 9;

void make_result(const step_plan& plan, std::int32_t num_drafts, step_result& out);

}  // namespace deepinfer
