#include "kernels/attention/index_scores.hpp"

#include "kernels/attention/attend_avx2.hpp"

namespace deepinfer::kernels {
namespace {

/// score[r] += sum_h weight[h] * relu(p[h][r]), r < count: heads in order.
template <bool Ordered>
inline void add_heads(const float* p, const float* weight, float weight_scale, std::int64_t heads,
                      std::int64_t count, float* score) {
  const auto zero = _mm256_setzero_ps();
  for (std::int64_t r = 0; r < count; r += 8) {
    auto sum = _mm256_loadu_ps(score + r);
    for (std::int64_t h = 0; h < heads; ++h) {
      auto product = _mm256_loadu_ps(p + h * tile_rows + r);
      auto scaled = _mm256_set1_ps(weight[h] * weight_scale);
      if (Ordered) product = round_to_bf16(product);
      product = _mm256_max_ps(zero, product);  // NaN stays
      if (Ordered)
        sum = _mm256_add_ps(sum, round_to_bf16(_mm256_mul_ps(product, round_to_bf16(scaled))));
      else
        sum = _mm256_fmadd_ps(product, scaled, sum);
    }
    _mm256_storeu_ps(score + r, sum);
  }
}

template <bool Ordered>
inline void score_tile(const index_scores_args& a, std::int64_t token, const float** rows,
                       std::int64_t count, float* score) {
  const float* query = a.query + token * a.heads * a.dim;
  const float* weight = a.weight + token * a.heads;
  float sum[tile_rows] = {};
  for (std::int64_t h = 0; h < a.heads; h += heads_together) {
    float p[heads_together * tile_rows];
    const auto heads = std::min(heads_together, a.heads - h);
    products<Ordered>(query + h * a.dim, heads, a.dim, rows, count, p);
    add_heads<Ordered>(p, weight + h, a.weight_scale, heads, count, sum);
  }
  if (Ordered)
    for (std::int64_t r = 0; r < count; ++r) sum[r] = bf16_round(sum[r]);
  std::copy_n(sum, count, score);
}

/// Visible rows [begin, end).
inline void score_rows(const index_scores_args& a, std::int64_t token, std::int64_t begin,
                       std::int64_t end, float* score) {
  const auto* table = a.batch.block_table + std::int64_t{a.batch.slot[token]} * a.batch.max_blocks;
  const std::int64_t per_block = a.batch.block_size / a.ratio;
  auto block = begin / per_block, within = begin % per_block;
  for (auto first = begin; first < end; first += tile_rows) {
    const auto count = std::min(tile_rows, end - first);
    const float* rows[tile_rows];
    for (std::int64_t r = 0; r < count; ++r) {
      rows[r] = a.keys + (table[block] * per_block + within) * a.dim;
      if (++within < per_block) continue;
      within = 0;
      ++block;
    }
    if (a.bf16)
      score_tile<true>(a, token, rows, count, score + first);
    else
      score_tile<false>(a, token, rows, count, score + first);
  }
}

}  // namespace

void index_score_rows_avx2(const index_scores_args& a, std::int64_t token, std::int64_t begin,
                           std::int64_t end, float* score) {
  const bool is_padding = a.batch.is_padding(token);
  const auto visible = is_padding ? begin : std::min(end, a.batch.visible(token, a.ratio));
  const bool is_masked = a.candidates != nullptr;
  const auto unscored = is_masked ? begin : std::max(begin, visible);
  std::fill(score + unscored, score + end, -std::numeric_limits<float>::infinity());
  if (is_padding) return;
  if (!is_masked) return score_rows(a, token, begin, visible, score);
  const std::int32_t* blocks = a.candidates + token * a.candidate_count;
  for (std::int64_t i = 0; i < a.candidate_count && blocks[i] >= 0; ++i) {
    const auto first = blocks[i] * a.candidate_size;
    if (first >= visible) break;
    auto last = first + a.candidate_size;
    for (; i + 1 < a.candidate_count && blocks[i + 1] == blocks[i] + 1; ++i)
      last += a.candidate_size;  // neighbours together: fuller tiles
    score_rows(a, token, std::max(begin, first), std::min(visible, last), score);
  }
}

void index_scores_avx2(const stream_ref& stream, const index_scores_args& a) {
  check_scores(a.batch, a.ratio, a.first, a.count, a.row_limit);
  constexpr std::int64_t rows = 512;  // of one token, as an item of work
  const auto parts = (a.row_limit + rows - 1) / rows;
  stream.for_ranges(a.count * parts, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const auto local = item / parts, first = item % parts * rows;
      index_score_rows_avx2(a, a.first + local, first, std::min(first + rows, a.row_limit),
                            a.score + local * a.row_limit);
    }
  });
}

}  // namespace deepinfer::kernels
