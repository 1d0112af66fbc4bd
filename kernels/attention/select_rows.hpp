/// The indexer of one layer in one call: index_scores, candidate_blocks and top_rows token by
/// token, so that no more than one token's scores per thread exist at a time.
///
/// Equal to the three ops one after the other, except that a token which sees at most k rows
/// selects them all unscored (whatever their scores would be, NaN included), unless its candidate
/// blocks have to be chosen by score or keep it from some of its rows.
/// Shapes: `scores` as in index_scores.hpp with first and count unused and score [score_rows,
/// row_limit] of scratch, score_rows >= 1; selected [tokens, k]; blocks [tokens, block_k] or null.
/// Edge cases: padding tokens get -1 throughout. Fewer rows of scratch than threads leave threads
/// idle.
/// Cost: with fewer tokens than threads the rows of a token are shared out, which takes a second
/// parallel region (and scratch for every token); otherwise one.
/// Source: model-v41.md 8.5, 8.6.
#pragma once

#include "kernels/attention/index_scores.hpp"
#include "kernels/attention/top_rows.hpp"

namespace deepinfer::kernels {

struct select_rows_args {
  static constexpr const char* op_name = "select_rows";
  index_scores_args scores;
  std::int64_t score_rows = 0;
  std::int64_t k = 0;
  std::int32_t* selected = nullptr;  ///< [tokens, k]
  std::int64_t block_size = 0;       ///< rows per block
  std::int64_t block_k = 0;
  std::int32_t* blocks = nullptr;  ///< [tokens, block_k]: the layer chooses candidates

  /// Whether the list of `token` follows without scores.
  bool selects_all(std::int64_t token) const;
  work_cost cost() const;
};
void select_rows_ref(const stream_ref&, const select_rows_args&);
void select_rows_avx2(const stream_ref&, const select_rows_args&);

/// Lists of a token that selects all.
void select_all_rows(const select_rows_args&, std::int64_t token);
void check_select_rows(const select_rows_args&);

}  // namespace deepinfer::kernels
