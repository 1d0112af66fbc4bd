/// Scores compressed rows for the sparse attention of one layer.
///   score[t][j] = sum_h weight[t][h] * relu(dot(query[t][h], key[j]))   for visible j, else -inf
/// Shapes: query [tokens, heads, dim]; weight [tokens, heads], times weight_scale, possibly
/// negative; keys paged [blocks, block_size / ratio, dim]; score [count, row_limit] for the tokens
/// first .. first + count - 1.
/// Visible: j < (position + 1) / ratio, so the token that completes a group sees its row. With
/// candidates only rows inside the token's candidate blocks are scored, all others get -inf.
/// Edge cases: a padding token gets -inf throughout. row_limit must hold every visible row of the
/// range.
/// Precision: f32 (dot in 16 lanes, heads in order); `bf16`: the product, the weighted product and
/// the sum round to bf16; the AVX2 twin then has the reference's bits, and without it fuses
/// multiplications and additions. A score's bits do not depend on the range, the other rows or the
/// candidates. Near-ties may order differently between twins: compare attention outputs.
/// Source: model-v41.md 8.5, 8.6, 4.4 point 16.
#pragma once

#include <cstdint>

#include "kernels/common/batch.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct index_scores_args {
  static constexpr const char* op_name = "index_scores";
  batch_view batch;
  std::int32_t ratio = 1;
  std::int64_t first = 0;         ///< scores are made for a range of tokens at a time:
  std::int64_t count = 0;         ///< count * row_limit bounds the buffer, whatever the context
  const float* query = nullptr;   ///< [tokens, heads, dim] (whole step)
  const float* weight = nullptr;  ///< [tokens, heads] (whole step)
  float weight_scale = 1;         ///< multiplies weight first (bf16 rounds the product)
  const float* keys = nullptr;
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  float* score = nullptr;
  std::int64_t row_limit = 0;
  const std::int32_t* candidates =
    nullptr;  ///< [tokens, candidate_count] block ids ascending, -1 padded
  std::int64_t candidate_count = 0;
  std::int64_t candidate_size = 0;  ///< rows per candidate block
  bool bf16 = false;

  work_cost cost() const;  ///< reads the candidates
};
void index_scores_ref(const stream_ref&, const index_scores_args&);
void index_scores_avx2(const stream_ref&, const index_scores_args&);
/// Rows [begin, end) of one token, all of them written to score[begin .. end), on the calling
/// thread.
void index_score_rows_avx2(const index_scores_args&, std::int64_t token, std::int64_t begin,
                           std::int64_t end, float* score);

/// That the tokens first .. first + count - 1 find room for the rows that they see.
void check_scores(const batch_view& batch, std::int32_t ratio, std::int64_t first,
                  std::int64_t count, std::int64_t row_limit);

}  // namespace deepinfer::kernels
