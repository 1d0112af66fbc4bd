/// All weights of a DeepSeek-V4.1 text model in the form the kernels read, packed once at load.
///
/// Matrices become panels (packed_matrix.hpp); vectors and biases f32; embeddings and Engram tables
/// stay as stored, in the mapped file. packing::exact rounds nothing and serves `exact` and
/// `released`; packing::fast rounds the large products to int8. Stream mixing, routers,
/// compressors, index keys and the index heads' weights stay exact always: they are small, and
/// choices hang on them.
/// Errors: those of the source; invalid_argument where the token classes do not fit the config.
/// Source: model-v41.md 3; 10.1, 10.2 (classes and constants).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/common/row_table.hpp"
#include "kernels/linear/packed_matrix.hpp"
#include "kernels/moe/expert_ffn.hpp"
#include "runtime/base/error.hpp"
#include "runtime/model/engram_constants.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/weight_source.hpp"

namespace deepinfer {

/// Mixing of the residual streams around one sublayer.
struct hyper_weights {
  kernels::packed_matrix fn;  ///< [(2 + S) * S, S * D] f32
  std::vector<float> base;    ///< [(2 + S) * S]
  std::vector<float> scale;   ///< [3]
};

/// Makes compressed rows; `wgate` is empty at ratio 1.
struct compressor_weights {
  kernels::packed_matrix wkv, wgate;
  std::vector<float> norm;
};

/// Makes index keys from latents.
struct index_key_weights {
  kernels::packed_matrix wk;
  std::vector<float> norm;
};

/// Scores and selects.
struct indexer_weights {
  kernels::packed_matrix wq_b, weights_proj;
};

struct attention_weights {
  kernels::packed_matrix wq_a, wq_b, wkv, wo_b;
  std::vector<kernels::packed_matrix> wo_a;  ///< one per group
  std::vector<float> q_norm, kv_norm, sink;
  compressor_weights compressor;  ///< where layer_config::owns_rows
  index_key_weights index_keys;   ///< where owns_index_keys
  indexer_weights indexer;        ///< where runs_indexer
};

struct moe_weights {
  kernels::packed_matrix gate;
  std::vector<float> bias;
  std::vector<kernels::expert_weights> experts;
  kernels::expert_weights shared;
};

struct engram_weights {
  kernels::row_table table;
  kernels::packed_matrix wkv;
  std::vector<float> q_weight, k_weight;  ///< [S, D]
  engram_constants constants;
};

struct block_weights {
  std::vector<float> attn_norm, ffn_norm;
  hyper_weights attn_mix, ffn_mix;
  attention_weights attention;
  moe_weights moe;
};

struct draft_weights {
  kernels::packed_matrix main_proj;
  std::vector<float> main_norm, norm;
  kernels::row_table markov_embed;
  kernels::packed_matrix markov_head;
  std::vector<float> confidence;  ///< [hidden + rank]
};

struct model_weights {
  model_config config;
  std::vector<std::int32_t> token_classes;  ///< [vocab]; empty without Engram
  kernels::row_table embed;
  kernels::packed_matrix head;
  std::vector<float> norm;
  std::vector<block_weights> blocks;    ///< [layer_count + draft stages]
  std::vector<engram_weights> engrams;  ///< in the order of config.engram_layers
  draft_weights draft;                  ///< where config.has_draft()

  kernels::packing packed_for = kernels::packing::exact;
  std::int64_t packed_bytes = 0;  ///< memory of all packed matrices

  /// Keeps what the tables and panels point to.
  std::vector<std::shared_ptr<const void>> owners;
};

/// Told after every tensor; `total` is 0 where the source does not know it.
using load_progress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

/// Reads every tensor that the config asks for. `token_classes` is Engram's map, one class per
/// vocabulary entry (empty if the model has no Engram).
result<std::shared_ptr<const model_weights>>
load_weights(const model_config& config, std::vector<std::int32_t> token_classes,
             kernels::packing how, weight_source& source, const load_progress& progress = {});

}  // namespace deepinfer
