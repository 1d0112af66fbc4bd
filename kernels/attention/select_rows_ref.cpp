#include "kernels/attention/select_rows.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer::kernels {

namespace {

std::int64_t visible_of(const select_rows_args& a, std::int64_t token) {
  const auto& s = a.scores;
  return s.batch.is_padding(token) ? 0 : s.batch.visible(token, s.ratio);
}

/// 0 .. count - 1, then -1 up to `room`.
void count_up(std::int32_t* out, std::int64_t count, std::int64_t room) {
  for (std::int64_t i = 0; i < room; ++i) out[i] = i < count ? static_cast<std::int32_t>(i) : -1;
}

}  // namespace

bool select_rows_args::selects_all(std::int64_t token) const {
  const auto visible = visible_of(*this, token);
  if (visible > k) return false;
  if (visible == 0) return true;
  if (blocks && (visible + block_size - 1) / block_size > block_k) return false;
  if (!scores.candidates) return true;
  const auto wanted = (visible + scores.candidate_size - 1) / scores.candidate_size;
  // Ascending: if the last wanted entry is the last block, none is missing before it.
  return wanted <= scores.candidate_count &&
         scores.candidates[token * scores.candidate_count + wanted - 1] == wanted - 1;
}

work_cost select_rows_args::cost() const {
  work_cost sum;
  auto one = scores;
  one.count = 1;
  for (one.first = 0; one.first < scores.batch.tokens; ++one.first)
    if (!selects_all(one.first)) sum += one.cost();
  return sum;
}

void select_all_rows(const select_rows_args& a, std::int64_t token) {
  const auto visible = visible_of(a, token);
  count_up(a.selected + token * a.k, visible, a.k);
  if (a.blocks)
    count_up(a.blocks + token * a.block_k, (visible + a.block_size - 1) / a.block_size, a.block_k);
}

void check_select_rows(const select_rows_args& a) {
  DI_CHECK(a.scores.batch.tokens == 0 || a.score_rows > 0, "no scratch for scores");
  check_scores(a.scores.batch, a.scores.ratio, 0, a.scores.batch.tokens, a.scores.row_limit);
}

void select_rows_ref(const stream_ref& stream, const select_rows_args& a) {
  check_select_rows(a);
  const std::int64_t tokens = a.scores.batch.tokens;
  const std::int64_t threads = stream.team ? stream.team->threads() : 1;
  const auto parts = std::min({tokens, threads, a.score_rows});
  // A range is one part, or all of them on one thread: either way a part has its own scratch.
  stream.for_ranges(parts, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = tokens * begin / parts; token < tokens * end / parts; ++token) {
      if (a.selects_all(token)) {
        select_all_rows(a, token);
        continue;
      }
      auto s = a.scores;
      s.first = token;
      s.count = 1;
      s.score += begin * s.row_limit;
      index_scores_ref({}, s);
      if (a.blocks)
        candidate_blocks_ref({}, {s.batch, s.ratio, token, 1, s.score, s.row_limit, a.block_size,
                                  a.block_k, a.blocks});
      top_rows_ref({}, {s.batch, s.ratio, token, 1, s.score, s.row_limit, a.k, a.selected});
    }
  });
}

}  // namespace deepinfer::kernels
