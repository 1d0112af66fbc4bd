/// Checks the sizes and layer lists of a model_config and derives its table of layers.
///
/// Errors (bad_checkpoint) start with `prefix`, the JSON path of the object that has the keys.
/// Source: model-v41.md 1.2 (rules), 2 (the table), 10.2 (primes).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/model/model_config.hpp"

namespace deepinfer {

/// Lists as the file gives them.
struct topology_lists {
  std::vector<std::int32_t> ratios;             ///< compress_ratios
  std::vector<std::int32_t> kv_sources;         ///< kv_source_layer_ids
  std::vector<std::int32_t> index_key_sources;  ///< index_k_source_layer_ids
  std::vector<std::int32_t> index_sources;      ///< index_source_layer_ids
  std::vector<std::int32_t> engram_layers;      ///< engram_layer_ids
  std::vector<std::int32_t> engram_rows;        ///< engram_num_embeddings; empty: not given
};

/// Sizes that must fit each other: heads and groups, rotary width, experts per token, scale groups.
result<void> check_sizes(const model_config& config, const std::string& prefix);

/// Fills config.layers and config.engram_layers, or tells which rule `lists` breaks.
result<void> derive_layers(model_config& config, const topology_lists& lists,
                           const std::string& prefix);

/// The first `number` primes >= `start` that follow each other. Cost: number * sqrt(largest).
std::vector<std::int64_t> primes_from(std::int64_t start, std::int64_t number);

}  // namespace deepinfer
