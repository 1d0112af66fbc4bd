#include "kernels/attention/select_rows.hpp"

#include <algorithm>

namespace deepinfer::kernels {
namespace {

constexpr std::int64_t rows_together = 256;  // of one token, as an item of work

inline std::int64_t visible_of(const select_rows_args& a, std::int64_t token) {
  const auto& s = a.scores;
  return s.batch.is_padding(token) ? 0 : s.batch.visible(token, s.ratio);
}

/// Only what is visible is read, so only that is scored.
inline void choose(const select_rows_args& a, std::int64_t token, const float* score) {
  const auto& s = a.scores;
  if (a.blocks)
    candidate_blocks_of_token_avx2({.batch = s.batch,
                                    .ratio = s.ratio,
                                    .size = a.block_size,
                                    .k = a.block_k,
                                    .blocks = a.blocks},
                                   token, score);
  top_rows_of_token_avx2({.batch = s.batch, .ratio = s.ratio, .k = a.k, .selected = a.selected},
                         token, score);
}

/// Fewer tokens than threads: first the scores, cut by rows, then the choices.
inline void select_by_rows(const stream_ref& stream, const select_rows_args& a) {
  const auto& s = a.scores;
  const std::int64_t tokens = s.batch.tokens;
  std::int64_t most = 0;
  for (std::int64_t token = 0; token < tokens; ++token)
    if (!a.selects_all(token)) most = std::max(most, visible_of(a, token));
  const auto parts = (most + rows_together - 1) / rows_together;
  stream.for_ranges(tokens * parts, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const auto token = item / parts, first = item % parts * rows_together;
      const auto last = std::min(first + rows_together, visible_of(a, token));
      if (first < last && !a.selects_all(token))
        index_score_rows_avx2(s, token, first, last, s.score + token * s.row_limit);
    }
  });
  stream.for_ranges(tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      if (a.selects_all(token))
        select_all_rows(a, token);
      else
        choose(a, token, s.score + token * s.row_limit);
    }
  });
}

}  // namespace

void select_rows_avx2(const stream_ref& stream, const select_rows_args& a) {
  check_select_rows(a);
  const auto& s = a.scores;
  const std::int64_t tokens = s.batch.tokens;
  const std::int64_t threads = stream.team ? stream.team->threads() : 1;
  if (tokens < threads && tokens <= a.score_rows) return select_by_rows(stream, a);
  const auto parts = std::min({tokens, threads, a.score_rows});
  stream.for_ranges(parts, [&](std::int64_t begin, std::int64_t end) {
    float* score = s.score + begin * s.row_limit;
    for (auto token = tokens * begin / parts; token < tokens * end / parts; ++token) {
      if (a.selects_all(token)) {
        select_all_rows(a, token);
        continue;
      }
      index_score_rows_avx2(s, token, 0, visible_of(a, token), score);
      choose(a, token, score);
    }
  });
}

}  // namespace deepinfer::kernels
