/// The expert sublayer: router, routed experts, shared expert, sum in ascending expert id.
///
/// Reads the normalised input in buffers.hidden, leaves the output in buffers.out. Padding tokens
/// are routed nowhere.
/// Source: model-v41.md 9, 4.4 points 22 to 24.
#pragma once

#include <cstdint>

#include "runtime/model/forward_context.hpp"
#include "runtime/model/weights.hpp"

namespace deepinfer {

/// `chosen`: experts per token (draft stages have their own number).
void run_moe(const forward_context& context, std::int32_t layer, const moe_weights& weights,
             std::int32_t chosen);

}  // namespace deepinfer
