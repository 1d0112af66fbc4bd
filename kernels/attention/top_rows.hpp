/// Selections from index scores, as ascending sets.
///
/// top_rows: selected[t] = the min(k, eligible) rows with the largest scores among the visible ones
/// whose score is above -inf, ascending, the rest of the k entries -1. Ties: the lower row wins.
/// candidate_blocks: blocks of `size` rows score the largest score of their visible rows; the block
/// of the newest visible row is always kept, before any score; the best min(k, blocks) with a score
/// above -inf stay, ascending, -1 padded. Ties: the lower block wins.
/// Shapes: score [count, row_limit] of the tokens first .. first + count - 1; selected and blocks
/// [tokens, k] of the whole step. Padding tokens get -1 throughout. -0 and +0 are one score. NaN
/// counts as -inf.
/// Cost: the reference passes four times over the scores; the AVX2 twins, with equal results, about
/// three times, and once where everything visible is selected. No scratch.
/// Source: model-v41.md 8.5, 8.6, 22 point 29.
#pragma once

#include <cstdint>

#include "kernels/common/batch.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct top_rows_args {
  static constexpr const char* op_name = "top_rows";
  batch_view batch;
  std::int32_t ratio = 1;
  std::int64_t first = 0;
  std::int64_t count = 0;
  const float* score = nullptr;
  std::int64_t row_limit = 0;
  std::int64_t k = 0;
  std::int32_t* selected = nullptr;  ///< [tokens, k]
};
void top_rows_ref(const stream_ref&, const top_rows_args&);
void top_rows_avx2(const stream_ref&, const top_rows_args&);
/// One token, whose scores begin at `score`, on the calling thread.
void top_rows_of_token_avx2(const top_rows_args&, std::int64_t token, const float* score);

struct candidate_blocks_args {
  static constexpr const char* op_name = "candidate_blocks";
  batch_view batch;
  std::int32_t ratio = 1;
  std::int64_t first = 0;
  std::int64_t count = 0;
  const float* score = nullptr;
  std::int64_t row_limit = 0;
  std::int64_t size = 0;  ///< rows per block
  std::int64_t k = 0;
  std::int32_t* blocks = nullptr;  ///< [tokens, k]
};
void candidate_blocks_ref(const stream_ref&, const candidate_blocks_args&);
void candidate_blocks_avx2(const stream_ref&, const candidate_blocks_args&);
void candidate_blocks_of_token_avx2(const candidate_blocks_args&, std::int64_t token,
                                    const float* score);

}  // namespace deepinfer::kernels
