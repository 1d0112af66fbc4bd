/// Engram: adds what the n-grams that end at each token have in a hash table to the streams.
///
/// Reads the paged token history, the step's own ids included. Source: model-v41.md 10.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/forward_context.hpp"
#include "runtime/model/weights.hpp"

namespace deepinfer {

/// `token_classes`: [vocab].
void run_engram(const forward_context& context, std::int32_t layer, const engram_weights& weights,
                const std::vector<std::int32_t>& token_classes);

}  // namespace deepinfer
