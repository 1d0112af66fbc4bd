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
};

/// exact: none. released: all, but inputs only where the weights are quantised.
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
};

/// Rotation of compressed rows of one ratio: where each token's row stands, and its angles.
struct row_rotation {
  std::int32_t ratio = 0;
  lazy_array<std::int32_t> position;  ///< [tokens], -1: the token completes no row
  lazy_array<float> angles;           ///< [tokens, rope_dim / 2, 2]
};

struct forward_buffers {
  forward_buffers(const model_config& config, const forward_limits& limits, bool with_draft);

  lazy_array<float> streams;    ///< [tokens, S, D]
  lazy_array<float> premix;     ///< [tokens, S] collapse weights for the next sublayer
  lazy_array<float> attn_pre;   ///< [tokens, S] made by attention's mix, for the experts
  lazy_array<float> post;       ///< [tokens, S]
  lazy_array<float> comb;       ///< [tokens, S, S]
  lazy_array<float> mix;        ///< [tokens, (2 + S) * S]
  lazy_array<float> hidden;     ///< [tokens, D] input of a sublayer
  lazy_array<float> hidden_q8;  ///< the same, rounded
  lazy_array<float> out;        ///< [tokens, D] its output

  lazy_array<float> window_angles, compressed_angles;  ///< [tokens, rope_dim / 2, 2]
  std::vector<row_rotation> rotations;                 ///< one per ratio of a row source
  std::vector<float> window_frequencies, compressed_frequencies;

  lazy_array<float> q_latent, q_latent_q8;   ///< [tokens, q_rank]
  lazy_array<float> q, attended;             ///< [tokens, heads, head_dim]
  lazy_array<float> rows;                    ///< [tokens, head_dim] window rows of the step
  lazy_array<float> pool_value, pool_score;  ///< [tokens, head_dim]
  lazy_array<float> latent;        ///< [tokens, head_dim] unrotated, of the newest row source
  lazy_array<float> index_key;     ///< [tokens, index_head_dim]
  lazy_array<float> index_q;       ///< [tokens, index heads, index_head_dim]
  lazy_array<float> index_weight;  ///< [tokens, index heads]
  lazy_array<float> scores;
  lazy_array<std::int32_t> selected;    ///< [tokens, topk] list of the newest index source
  lazy_array<std::int32_t> candidates;  ///< [tokens, blocks]
  lazy_array<float> grouped;            ///< [tokens, o_groups * o_rank]

  lazy_array<float> router_logits;           ///< [tokens, experts]
  lazy_array<std::int32_t> expert_id;        ///< [tokens, k]
  lazy_array<float> expert_weight;           ///< [tokens, k]
  lazy_array<std::int32_t> expert_offset;    ///< [experts + 1]
  lazy_array<std::int32_t> expert_order;     ///< [tokens * k]
  lazy_array<float> expert_hidden;           ///< [tokens * k, 2, inter]
  lazy_array<float> expert_out;              ///< [tokens * k, D]
  lazy_array<float> shared_gate, shared_up;  ///< [tokens, inter]
  lazy_array<float> shared_out;              ///< [tokens, D]

  lazy_array<std::int64_t> engram_ids;  ///< [tokens, columns]
  lazy_array<float> engram_rows;        ///< [tokens, columns * engram head_dim]
  lazy_array<float> engram_kv;          ///< [tokens, (S + 1) * D]

  lazy_array<float> taps, taps_q8;   ///< [tokens, taps * D]
  lazy_array<float> main, main_q8;   ///< [tokens, D]
  lazy_array<float> picked_streams;  ///< [tokens, S, D] of the tokens whose logits are wanted
  lazy_array<float> picked_premix;   ///< [tokens, S]
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

  /// Rounds `count` rows of `x` to `format` into `into` if inputs are quantised; returns what the
  /// product shall read.
  const float* quantised(const float* x, lazy_array<float>& into, std::int64_t count,
                         std::int64_t dim) const;
  /// Rounds in place if the caches are rounded.
  void round_kv(float* x, std::int64_t count, std::int64_t dim, kernels::quantiser format) const;

  /// Embeds the step's ids into equal streams; the first attention reads stream 0 only.
  void start_streams(const kernels::row_table& embed) const;
  /// Rotates the last rope_dim entries of each head in place.
  void rope(float* x, const float* angles, std::int64_t count, std::int64_t heads, std::int64_t dim,
            bool inverse = false) const;
  void linear(const kernels::packed_matrix& weight, const float* x, float* y, std::int64_t count,
              bool bf16) const;
  void norm(const std::vector<float>& weight, const float* x, float* y, std::int64_t count) const;

  template <class T>
  void show(model_point point, std::int32_t layer, const T* values, std::int64_t count) const {
    if (observer) observer->see(point, layer, std::span(values, static_cast<std::size_t>(count)));
  }
};

}  // namespace deepinfer
