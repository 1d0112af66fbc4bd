/// The expert sublayer between its borders: routed experts and the shared one.
///
/// Reads the router's choice in buffers.expert_id and expert_weight (begin_experts), leaves
/// buffers.expert_out and shared_out, which the next border sums in ascending expert id. Padding
/// tokens are routed nowhere.
/// Source: model-v41.md 9, 4.4 points 22 to 24.
#pragma once

#include <cstdint>

#include "runtime/model/forward_context.hpp"
#include "runtime/model/sublayer.hpp"
#include "runtime/model/weights.hpp"

namespace deepinfer {

/// `input` as begin_experts returned it. `chosen`: experts per token (draft stages have their own
/// number).
unfinished run_experts(const forward_context& context, const moe_weights& weights,
                       const product_input& input, std::int32_t chosen);

}  // namespace deepinfer
