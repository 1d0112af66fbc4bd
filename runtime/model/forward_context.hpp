/// What the parts of one forward share: the step's tokens, the device's ops, state and activations.
///
/// Activations are sized once for the largest step; nothing is allocated while a step runs.
/// Source: model-v41.md 4.4, 4.5 (numerics), 5, 15.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/model/kv_layout.hpp"
#include "runtime/model/lazy_array.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/model_observer.hpp"
#include "runtime/model/step_runner.hpp"

namespace deepinfer {

/// Which roundings of the published numerics a forward does.
struct numerics {
  bool bf16 = false;              ///< activations between the products
  bool quantises_inputs = false;  ///< inputs of FP8 and FP4 products
  bool rounds_kv = false;         ///< window rows, index queries and keys, compressed rows
  bool int8_inputs = false;       ///< inputs of the large products as int8 rows
};

/// exact: none. released: all, but inputs only where the weights are quantised. fast: int8 inputs.
numerics numerics_of(numeric_mode mode, const model_config& config);

/// Largest step. `scores` bounds the buffer of index scores, which are made for as many tokens at a
/// time as fit; it holds at least one token's.
struct forward_limits {
  std::int32_t tokens = 0;
  std::int32_t slots = 0;
  std::int64_t positions = 0;  ///< one past the highest position of any step
  std::int64_t scores = 1 << 22;
};

/// The tokens of a step as the forward sees them.
struct step_tokens {
  kernels::batch_view batch;
  const std::int32_t* token_id = nullptr;  ///< [tokens] ids in [0, vocab)
  std::int64_t position_limit = 0;         ///< a bound the host knew: positions are below it
  std::int32_t kept_tokens = -1;  ///< that the late layers compute; -1: all of them (replay.hpp)
};

/// What products read of one input: f32 rows and, in fast mode, the same as int8.
struct product_input {
  const float* x = nullptr;
  kernels::int8_rows x8;
};

/// Memory of an input in the form that the numeric mode's products read.
struct input_buffer {
  input_buffer() = default;
  input_buffer(std::int64_t rows, std::int64_t dim);

  lazy_array<float> rounded;      ///< [rows, dim] released
  lazy_array<std::int8_t> codes;  ///< [rows, padded(dim)] fast
  lazy_array<float> scales;       ///< [rows, padded(dim) / 32] fast
};

/// Rotation of compressed rows of one ratio: where each token's row stands, and its angles.
struct row_rotation {
  std::int32_t ratio = 0;
  lazy_array<std::int32_t> position;  ///< [tokens], -1: the token completes no row
  lazy_array<float> angles;           ///< [tokens, rope_dim / 2, 2]
};

struct forward_buffers {
  forward_buffers(const model_config& config, const forward_limits& limits, bool with_draft);

  lazy_array<float> streams;   ///< [tokens, S, D]
  lazy_array<float> premix;    ///< [tokens, S] collapse weights for the next sublayer
  lazy_array<float> attn_pre;  ///< [tokens, S] made by attention's mix, for the experts
  lazy_array<float> post;      ///< [tokens, S]
  lazy_array<float> comb;      ///< [tokens, S, S]
  lazy_array<float> mix;       ///< [tokens, (2 + S) * S]
  lazy_array<float> mix_partial;
  lazy_array<float> hidden;   ///< [tokens, D] input of a sublayer
  input_buffer hidden_input;  ///< the same for the products
  lazy_array<float> out;      ///< [tokens, D] its output

  lazy_array<float> window_angles, compressed_angles;  ///< [tokens, rope_dim / 2, 2]
  std::vector<row_rotation> rotations;                 ///< one per ratio of a row source
  std::vector<float> window_frequencies, compressed_frequencies;

  lazy_array<float> q_latent;  ///< [tokens, q_rank]
  input_buffer q_latent_input;
  lazy_array<float> q, attended;             ///< [tokens, heads, head_dim]
  lazy_array<float> rows;                    ///< [tokens, head_dim] window rows of the step
  lazy_array<float> pool_value, pool_score;  ///< [tokens, head_dim]
  lazy_array<float> latent;        ///< [tokens, head_dim] unrotated, of the newest row source
  lazy_array<float> memory;        ///< [tokens, head_dim] rotated
  lazy_array<float> index_key;     ///< [tokens, index_head_dim]
  lazy_array<float> index_q;       ///< [tokens, index heads, index_head_dim]
  lazy_array<float> index_weight;  ///< [tokens, index heads]
  lazy_array<float> scores;
  lazy_array<std::int32_t> selected;    ///< [tokens, topk] list of the newest index source
  lazy_array<std::int32_t> candidates;  ///< [tokens, blocks]
  input_buffer attended_input;          ///< [tokens * o_groups, heads / o_groups * head_dim]
  lazy_array<float> grouped;            ///< [tokens, o_groups * o_rank]
  input_buffer grouped_input;

  lazy_array<float> router_logits;         ///< [tokens, experts]
  lazy_array<std::int32_t> expert_id;      ///< [tokens, k]
  lazy_array<float> expert_weight;         ///< [tokens, k]
  lazy_array<std::int32_t> expert_offset;  ///< [experts + 1]
  lazy_array<std::int32_t> expert_order;   ///< [tokens * k]
  lazy_array<float> expert_hidden;         ///< [tokens * k, 2, inter]
  lazy_array<float> expert_out;            ///< [tokens * k, D]
  lazy_array<std::int8_t> hidden8;         ///< [tokens * (k + 1), padded(inter)]
  lazy_array<float> hidden8_scales;        ///< [tokens * (k + 1), padded(inter) / 32]
  lazy_array<float> shared_hidden;         ///< [tokens, 2, inter]
  lazy_array<float> shared_out;            ///< [tokens, D]

  lazy_array<std::int64_t> engram_ids;  ///< [tokens, columns]
  lazy_array<float> engram_rows;        ///< [tokens, columns * engram head_dim]
  input_buffer engram_input;
  lazy_array<float> engram_kv;  ///< [tokens, (S + 1) * D]

  lazy_array<float> taps;  ///< [tokens, taps * D]
  lazy_array<float> main;  ///< [tokens, D]
  input_buffer taps_input, main_input;
  std::int64_t draft_rows_stride = 0;  ///< floats per stage
  lazy_array<float> draft_rows;        ///< [stages, tokens, head_dim]
  lazy_array<float> picked_streams;    ///< [tokens, S, D] of the tokens whose logits are wanted
  lazy_array<float> picked_premix;     ///< [tokens, S]

  lazy_array<std::int32_t> resume_edges;       ///< [tokens] that complete a resume point
  lazy_array<std::int32_t> resume_edge_count;  ///< [1]
};

struct forward_context {
  const kernels::ops& ops;
  const stream_ref& stream;
  const model_config& config;
  const numerics rounding;
  const step_tokens& step;
  forward_buffers& buffers;
  kv_state& state;
  model_observer* observer;

  std::int64_t tokens() const { return step.batch.tokens; }

  /// What the large products read of `count` rows of `x`: rounded or as int8 where the mode wants
  /// it.
  product_input input_of(const float* x, input_buffer& into, std::int64_t count,
                         std::int64_t dim) const;
  /// The same where the release rounds no input: rows stay as they are except in fast mode.
  product_input wide_input_of(const float* x, input_buffer& into, std::int64_t count,
                              std::int64_t dim) const;
  /// The args that make the forms above, for ops that do it on the way; empty (no output) where the
  /// mode has no such form. Afterwards made_input() is what products read.
  kernels::quantise_args round_input_args(const float* x, input_buffer& into, std::int64_t count,
                                          std::int64_t dim) const;
  kernels::to_int8_args int8_input_args(const float* x, input_buffer& into, std::int64_t count,
                                        std::int64_t dim) const;
  product_input made_input(const float* x, const input_buffer& from) const;

  /// Rounds in place if the caches are rounded, else empty.
  kernels::quantise_args round_kv_args(float* x, std::int64_t count, std::int64_t dim,
                                       kernels::quantiser format) const;

  /// Embeds the step's ids into equal streams; the first attention reads stream 0 only.
  void start_streams(const kernels::row_table& embed) const;
  /// Rotates the last rope_dim entries of each head in place.
  kernels::rope_args rope_args(float* x, const float* angles, std::int64_t count,
                               std::int64_t heads, std::int64_t dim) const;
  kernels::linear_args linear_args(const kernels::packed_matrix& weight, const product_input& input,
                                   float* y, std::int64_t count, bool bf16) const;
  kernels::rms_norm_args norm_args(const std::vector<float>& weight, const float* x, float* y,
                                   std::int64_t count) const;
  void linear(const kernels::packed_matrix& weight, const product_input& input, float* y,
              std::int64_t count, bool bf16) const;
  void norm(const std::vector<float>& weight, const float* x, float* y, std::int64_t count) const;

  /// Names what the following ops belong to, for a meter.
  void part(const char* name) const {
    if (stream.meter) stream.meter->enter(name);
  }

  template <class T>
  void show(model_point point, std::int32_t layer, const T* values, std::int64_t count) const {
    if (observer) observer->see(point, layer, std::span(values, static_cast<std::size_t>(count)));
  }
};

}  // namespace deepinfer
