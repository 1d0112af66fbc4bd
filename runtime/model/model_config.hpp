/// config.json of a DeepSeek-V4.1 checkpoint as a checked struct, with what each layer needs.
///
/// All numbers of the model come from here: nothing below is a constant of the code. Both spellings
/// of a key are read (the transformers one, named first below, and that of the released script),
/// from `text_config` or flat. Errors (bad_checkpoint) name the JSON path, what was found and what
/// was expected; keys that are unknown but may change the result come back as `warnings`.
/// Layer ids: 0 .. layer_count-1 are decoder layers, the draft.stage_count ids after them stages.
/// Source: model-v41.md 1 (keys, topology rules), 2 (the derived table), 10.2 (primes).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

/// What a layer does with the candidate blocks of the indexer.
enum class candidate_role : std::uint8_t {
  none,    ///< selects among all visible rows, or does not select
  source,  ///< selects among all visible rows and keeps the candidate blocks of this step
  masked,  ///< selects inside the blocks that the source kept
};

/// One layer, derived. `-1` is "none" throughout.
struct layer_config {
  std::int32_t ratio = 0;              ///< tokens per compressed row; 0: window only
  std::int32_t kv_source = -1;         ///< layer whose compressed rows it reads
  std::int32_t index_key_source = -1;  ///< layer whose index keys it scores or would score
  std::int32_t index_source = -1;      ///< layer whose selected list it reads
  candidate_role candidates = candidate_role::none;
  bool owns_rows = false;        ///< kv_source is the layer itself: has a compressor
  bool owns_index_keys = false;  ///< index_key_source is the layer itself
  bool runs_indexer = false;     ///< index_source is the layer itself
  std::int32_t engram = -1;  ///< index into model_config::engram_layers, applied before the layer
  std::int32_t tap = -1;     ///< index into draft.target_layers: its input feeds the drafter
};

/// Rotary frequencies of one kind of layer.
struct rope_config {
  double theta = 10000;
  bool is_yarn = false;  ///< the four below are used
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  std::int64_t original_max_positions = 0;
};

/// One Engram table. Column q = heads * (n - 2) + head holds the rows
/// [sum of primes before q, + primes[q]).
struct engram_layer_config {
  std::int32_t layer = 0;
  std::int64_t rows = 0;             ///< = sum of primes
  std::vector<std::int64_t> primes;  ///< [columns], consecutive over layers, then n, then head
};

struct engram_config {
  std::int32_t max_ngram = 0;    ///< engram_max_ngram_size; n-grams of 2 .. max_ngram
  std::int32_t head_count = 0;   ///< engram_n_heads, per n
  std::int32_t head_dim = 0;     ///< engram_head_dim, columns of a table row
  std::int64_t vocab_size = 0;   ///< engram_vocab_size: primes start here
  std::int32_t class_count = 0;  ///< engram_compressed_vocab_size: token classes
  token_id pad_token = 0;        ///< engram_pad_token_id: its class stands for missing history

  /// Table lookups per token and layer.
  std::int32_t columns() const { return (max_ngram - 1) * head_count; }
  /// Width of the concatenated lookups, the input of engram.wkv.
  std::int32_t input_dim() const { return columns() * head_dim; }
};

/// The DSpark drafter. stage_count == 0: none.
struct draft_config {
  std::int32_t stage_count = 0;             ///< num_nextn_predict_layers
  std::int32_t block_size = 0;              ///< dspark_block_size: drafts per pass
  token_id noise_token = 0;                 ///< dspark_noise_token_id
  std::int32_t markov_rank = 0;             ///< dspark_markov_rank
  std::vector<std::int32_t> target_layers;  ///< dspark_target_layer_ids, ascending
  std::int32_t expert_count = 0;            ///< dspark_n_routed_experts
  std::int32_t experts_per_token = 0;       ///< dspark_num_experts_per_tok
};

/// How weights are stored. Absent (nullopt in model_config): bf16 or f32 throughout.
struct quantization_config {
  std::int32_t block_rows = 32;     ///< weight_block_size[0]: output rows per FP8 scale
  std::int32_t block_columns = 32;  ///< weight_block_size[1]: inputs per FP8 scale
  std::int32_t expert_group = 32;   ///< inputs per FP4 scale of routed experts
};

struct model_config {
  // Text.
  std::int32_t vocab_size = 0;
  token_id bos_token = -1;                          ///< -1: none given
  token_id pad_token = -1;                          ///< -1: none given
  token_id image_token = -1;                        ///< -1: none given
  std::vector<token_id> eos_tokens;                 ///< one or several
  std::int64_t max_positions = 0;                   ///< max_position_embeddings
  std::string tokenizer_compatibility = "release";  ///< or "native"

  // Width and depth.
  std::int32_t hidden_size = 0;  ///< hidden_size, dim
  std::int32_t layer_count = 0;  ///< num_hidden_layers, n_layers
  double rms_norm_eps = 0;       ///< rms_norm_eps, norm_eps; may be 1e-20

  // Attention.
  std::int32_t head_count = 0;  ///< num_attention_heads, n_heads
  std::int32_t head_dim = 0;    ///< width of a row; one KV head serves all heads
  std::int32_t rope_dim = 0;    ///< qk_rope_head_dim: the last entries of a row, even
  std::int32_t q_rank = 0;      ///< q_lora_rank
  std::int32_t o_groups = 0;    ///< divides head_count
  std::int32_t o_rank = 0;      ///< o_lora_rank, per group
  std::int32_t window = 0;      ///< sliding_window, window_size; the query included
  rope_config window_rope;      ///< ratio-0 layers and draft stages
  rope_config compressed_rope;  ///< ratio >= 1 layers

  // Indexer. index_topk == 0: no layer has a ratio >= 1.
  std::int32_t index_head_count = 0;  ///< index_n_heads
  std::int32_t index_head_dim = 0;    ///< >= rope_dim: its last rope_dim entries rotate
  std::int32_t index_topk = 0;
  std::int32_t candidate_source = -1;     ///< candidate_source_layer_id; -1: feature off
  std::int32_t candidate_blocks = 0;      ///< candidate_topk_blocks
  std::int32_t candidate_block_size = 0;  ///< rows per block
  bool fp4_sparse_kv = true;              ///< use_fp4_sparse_kv: released rounding of main rows

  // Experts.
  std::int32_t expert_count = 0;         ///< n_routed_experts
  std::int32_t shared_expert_count = 1;  ///< n_shared_experts; always 1
  std::int32_t experts_per_token = 0;    ///< num_experts_per_tok, n_activated_experts
  std::int32_t expert_dim = 0;           ///< moe_intermediate_size, moe_inter_dim
  bool normalizes_weights = true;        ///< norm_topk_prob
  double routed_scale = 1;               ///< routed_scaling_factor, route_scale
  double gate_temperature = 1;           ///< gate_temp: divides router logits
  double swiglu_limit = 0;               ///< 0: no clamp

  // Residual streams.
  std::int32_t stream_count = 0;     ///< hc_mult
  std::int32_t sinkhorn_rounds = 0;  ///< hc_sinkhorn_iters
  double hyper_eps = 0;              ///< hc_eps

  engram_config engram;
  std::vector<engram_layer_config> engram_layers;  ///< ascending by layer; empty: no Engram
  draft_config draft;
  std::optional<quantization_config> quantization;

  std::vector<layer_config> layers;   ///< [layer_count + draft.stage_count], derived
  std::vector<std::string> warnings;  ///< one line each: unknown keys that may matter

  /// Rows of the mixing matrix: (2 + streams) * streams.
  std::int32_t mix_rows() const { return (2 + stream_count) * stream_count; }
  bool has_engram() const { return !engram_layers.empty(); }
  bool has_draft() const { return draft.stage_count > 0; }
  /// First layer with ratio 1 ("decoder" layers), or layer_count if there is none.
  std::int32_t first_ratio_one_layer() const;
};

/// Parses and checks the text of a config.json. Errors: bad_checkpoint, e.g.
///   text_config.kv_source_layer_ids: layer 4 has ratio 2, its source 3 has ratio 1
result<model_config> parse_model_config(std::string_view text);

/// `parse_model_config` of DIRECTORY/config.json; errors (bad_checkpoint) start with the path.
result<model_config> load_model_config(const std::string& directory);

}  // namespace deepinfer
