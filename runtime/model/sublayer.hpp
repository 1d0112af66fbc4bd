/// The border between two sublayers of the stack, as one device op: what the sublayer before left
/// is added to the streams, and the input of the next one is made from them.
///
/// The collapse weights a sublayer's mix computes are used by the next sublayer: attention reads
/// with buffers.premix (left by the layer before), the experts with attention's (buffers.attn_pre),
/// and the experts' are left in buffers.premix for the layer after.
/// Source: model-v41.md 5 step 3, 6, 9, 22 point 1.
#pragma once

#include <cstdint>

#include "runtime/model/forward_context.hpp"
#include "runtime/model/weights.hpp"

namespace deepinfer {

/// What a sublayer has computed but not yet added to the streams.
struct unfinished {
  enum class kind : std::uint8_t {
    nothing,
    attention,  ///< buffers.out
    experts,    ///< buffers.expert_out and shared_out: their sum goes through buffers.out
  };
  kind what = kind::nothing;
  std::int32_t chosen = 0;  ///< experts per token, of `experts`
};

/// Adds it: the streams are up to date, buffers.out holds the sublayer's output.
void finish_sublayer(const forward_context& context, const unfinished& before);

/// Finishes `before`, then leaves attention's input in buffers.hidden (attn_norm of the collapse)
/// and its coefficients in attn_pre, post and comb. `tap`, if set, gets the mean of the streams,
/// one row per `tap_stride`. Returns what products read.
product_input begin_attention(const forward_context& context, const unfinished& before,
                              const block_weights& weights, float* tap = nullptr,
                              std::int64_t tap_stride = 0);

/// Finishes attention, then leaves the experts' input in buffers.hidden, coefficients in premix,
/// post and comb, and the router's choice of `chosen` experts in expert_id and expert_weight.
product_input begin_experts(const forward_context& context, const block_weights& weights,
                            std::int32_t chosen);

/// hidden[t] = sum over streams of weight[t] * streams[t], for `count` tokens.
void collapse_streams(const forward_context& context, const float* streams, const float* weight,
                      float* hidden, std::int64_t count);

}  // namespace deepinfer
