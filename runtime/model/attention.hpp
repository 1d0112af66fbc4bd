/// The attention sublayer between its borders, for decoder layers and draft stages.
///
/// Device ops, in order: products of the input; rows (norms, rotation, pooling, appending), then
/// the pooling ring; products of the latents; where the layer has an indexer: keys and index
/// queries, then scoring and selection; attention; the two output products; the window ring.
/// Result: buffers.out.
/// Source: model-v41.md 8 (8.9: an indexer scores the keys of its own source, always), 11.3.
#pragma once

#include "runtime/model/forward_context.hpp"
#include "runtime/model/weights.hpp"

namespace deepinfer {

/// Whether a layer with a memory of its own makes its rows and keys, or has made them.
enum class memory_stage : std::uint8_t { due, done };

/// A decoder layer; `input` as begin_attention returned it.
void run_attention(const forward_context& context, std::int32_t layer,
                   const attention_weights& weights, const product_input& input,
                   memory_stage memory = memory_stage::due);

/// Compressed rows and index keys of a layer that owns both, from buffers.hidden, and nothing else.
void make_memory(const forward_context& context, std::int32_t layer,
                 const attention_weights& weights);

/// Drafts that attend to the ring of a stage and to one another.
struct draft_block {
  std::int32_t sequences = 0;
  std::int32_t drafts = 0;                 ///< K
  const std::int32_t* slot = nullptr;      ///< [sequences]
  const std::int32_t* position = nullptr;  ///< [sequences]
};

/// A draft stage, whose ring is that of `layer`.
void run_draft_attention(const forward_context& context, std::int32_t layer,
                         const attention_weights& weights, const product_input& input,
                         const draft_block& block);

}  // namespace deepinfer
