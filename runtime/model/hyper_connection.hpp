/// A block around its sublayers: mixing coefficients, collapse, norm, sublayer, stream update.
///
/// The collapse weights a sublayer's mix computes are used by the next sublayer: attention reads
/// with buffers.premix (left by the layer before), the experts with attention's, and the experts'
/// are left in buffers.premix for the layer after.
/// Source: model-v41.md 5 step 3, 6, 22 point 1.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/forward_context.hpp"
#include "runtime/model/weights.hpp"

namespace deepinfer {

/// Before attention: buffers.hidden = attn_norm(collapse), coefficients in attn_pre, post, comb.
void enter_attention(const forward_context& context, const block_weights& weights);

/// Before the experts: buffers.hidden = ffn_norm(collapse), coefficients in premix, post, comb.
void enter_experts(const forward_context& context, const block_weights& weights);

/// Adds buffers.out to the streams.
void leave_sublayer(const forward_context& context);

/// hidden[t] = sum over streams of weight[t] * streams[t], for `count` tokens.
void collapse_streams(const forward_context& context, const float* streams, const float* weight,
                      float* hidden, std::int64_t count);

}  // namespace deepinfer
