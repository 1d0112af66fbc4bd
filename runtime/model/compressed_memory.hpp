/// The shared compressed memory of V4.1: who appends rows and keys, and who selects among them.
///
/// All three read the layer's normalised input in buffers.hidden; run in the order below.
/// Source: model-v41.md 8.3 to 8.6, 8.9 (an indexer scores the keys of its own source, always).
#pragma once

#include <cstdint>

#include "runtime/model/forward_context.hpp"
#include "runtime/model/weights.hpp"

namespace deepinfer {

/// Pools the step's tokens into latents (buffers.latent, unrotated), keeps unfinished groups in the
/// pooling ring and appends the finished rows, rotated at their first token's position.
void append_rows(const forward_context& context, std::int32_t layer,
                 const attention_weights& weights);

/// Appends index keys made from buffers.latent.
void append_index_keys(const forward_context& context, std::int32_t layer,
                       const attention_weights& weights);

/// Scores what each token sees and leaves the list in buffers.selected, for this layer and those
/// after it; the candidate source also leaves buffers.candidates. `query_input` as project_queries
/// returned it.
void select_rows(const forward_context& context, std::int32_t layer,
                 const attention_weights& weights, const float* query_input);

}  // namespace deepinfer
