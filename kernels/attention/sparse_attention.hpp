/// Attention over the sliding window and the selected rows of the compressed memory.
///   l_a = scale * dot(q_h, row_a);  weights = exp(l_a - M) / (sum exp(l - M) + exp(sink_h - M))
///   o_h = sum weight_a * row_a
/// A row serves as key and value. The sink is a raw per-head logit without value.
/// List of a query at position t: `window` entries, oldest first (positions max(0, t - window + 1)
/// .. t, the rest empty), then its `selected` entries in the order given (-1 = empty). Window rows
/// at or after the row's first position come from step_rows, older ones from the ring. With
/// window_begin no window reaches below the sequence's entry of it: there are no rows there.
/// Shapes: q and o [tokens, heads, dim]; step_rows [tokens, dim]; ring [slots, ring_size, dim];
/// memory paged [blocks, block_size / ratio, dim]; selected [tokens, selected_count]. o must not
/// alias q.
/// Edge cases: padding tokens and queries whose list is empty give 0. ratio 0: no memory,
/// selected_count 0.
/// Precision: f32, tiles of 64 list entries with a running maximum that starts at -1e30, entries in
/// list order. `bf16`: probabilities round to bf16 before the value sum (the denominator keeps the
/// unrounded ones) and the output rounds to bf16. The AVX2 twins have the references' bits with
/// `bf16`; without it they fuse multiplications and additions. A head's bits do not depend on the
/// other heads and tokens.
/// Cost: a token's rows are read once per 64 heads, from the second-level cache for 32 at a time.
/// Source: model-v41.md 8.4, 8.7, 4.4 point 17.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/batch.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct sparse_attention_args {
  static constexpr const char* op_name = "sparse_attention";
  batch_view batch;
  const float* q = nullptr;
  const float* step_rows = nullptr;
  const float* ring = nullptr;
  std::int32_t ring_size = 0;
  std::int32_t window = 0;
  const std::int32_t* window_begin = nullptr;  ///< [slots]; null: 0
  std::int32_t ratio = 0;
  const float* memory = nullptr;
  const std::int32_t* selected = nullptr;
  std::int64_t selected_count = 0;
  const float* sink = nullptr;  ///< [heads]
  float scale = 0;
  float* o = nullptr;
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  bool bf16 = false;

  /// Oldest position of a token's window; above its own where the window is empty.
  std::int64_t oldest(std::int64_t token) const {
    const std::int64_t begin = window_begin ? window_begin[batch.slot[token]] : 0;
    return std::max(begin, std::int64_t{batch.position[token]} - window + 1);
  }

  work_cost cost() const;  ///< reads the lists
};
void sparse_attention_ref(const stream_ref&, const sparse_attention_args&);
void sparse_attention_avx2(const stream_ref&, const sparse_attention_args&);
/// Items [begin, end) of tokens * heads, on the calling thread.
void sparse_attention_heads_avx2(const sparse_attention_args&, std::int64_t begin,
                                 std::int64_t end);
void check_sparse_attention(const sparse_attention_args&);

/// The draft pass: all K queries of a sequence see one list, the context rows of positions max(0, p
/// - window + 1) .. p from the ring (`window` entries), then all K block rows. Sequences with slot
/// or position < 0 give 0.
/// Shapes: q and o [sequences, K, heads, dim]; block_rows [sequences, K, dim]. Source: model-v41.md
/// 11.3.
struct block_attention_args {
  static constexpr const char* op_name = "block_attention";
  std::int32_t sequences = 0;
  std::int32_t block = 0;                  ///< K
  const std::int32_t* slot = nullptr;      ///< [sequences]
  const std::int32_t* position = nullptr;  ///< [sequences] p, the last context position
  const float* q = nullptr;
  const float* block_rows = nullptr;
  const float* ring = nullptr;
  std::int32_t ring_size = 0;
  std::int32_t window = 0;
  const std::int32_t* window_begin = nullptr;  ///< [slots]; null: 0
  const float* sink = nullptr;
  float scale = 0;
  float* o = nullptr;
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  bool bf16 = false;

  /// Oldest context position that a sequence's queries see.
  std::int64_t oldest(std::int64_t sequence) const {
    const std::int64_t begin = window_begin ? window_begin[slot[sequence]] : 0;
    return std::max(begin, std::int64_t{position[sequence]} - window + 1);
  }

  work_cost cost() const;
};
void block_attention_ref(const stream_ref&, const block_attention_args&);
void block_attention_avx2(const stream_ref&, const block_attention_args&);
/// Items [begin, end) of sequences * K * heads, on the calling thread.
void block_attention_heads_avx2(const block_attention_args&, std::int64_t begin, std::int64_t end);

}  // namespace deepinfer::kernels
