/// The attention sublayer: queries, window rows, compressed memory, selection, output projection.
///
/// Reads the normalised input in buffers.hidden, leaves the output in buffers.out, appends to the
/// layer's state. Order inside a step: rows and keys of the step are appended first, then scored
/// and read back from memory; the window ring is written last, because older positions are read
/// from it.
/// Source: model-v41.md 8, 16.
#pragma once

#include <cstdint>

#include "runtime/model/forward_context.hpp"
#include "runtime/model/weights.hpp"

namespace deepinfer {

/// A decoder layer.
void run_attention(const forward_context& context, std::int32_t layer,
                   const attention_weights& weights);

/// Queries of buffers.hidden: buffers.q_latent (normed; the returned pointer is what products
/// read), buffers.q (rotated), buffers.rows (rotated and rounded).
const float* project_queries(const forward_context& context, const attention_weights& weights,
                             const float* angles);

/// buffers.attended to buffers.out: inverse rotation, wo_a by groups, wo_b.
void project_output(const forward_context& context, const attention_weights& weights,
                    const float* angles);

}  // namespace deepinfer
