#include "kernels/attention/index_scores.hpp"

#include <algorithm>
#include <limits>

#include "kernels/common/formats.hpp"
#include "kernels/common/lanes.hpp"
#include "runtime/base/check.hpp"

namespace deepinfer::kernels {
namespace {

constexpr std::int64_t tile_rows = 512;

float score_row(const index_scores_args& a, std::int64_t token, const float* key) {
  const float* query = a.query + token * a.heads * a.dim;
  const float* weight = a.weight + token * a.heads;
  float sum = 0;
  for (std::int64_t h = 0; h < a.heads; ++h) {
    float product = dot(query + h * a.dim, key, a.dim);
    if (a.bf16) product = bf16_round(product);
    product = std::max(product, 0.0F);
    const float scaled = weight[h] * a.weight_scale;
    if (a.bf16)
      sum += bf16_round(product * bf16_round(scaled));
    else
      sum += product * scaled;
  }
  return a.bf16 ? bf16_round(sum) : sum;
}

void score_range(const index_scores_args& a, std::int64_t token, std::int64_t begin,
                 std::int64_t end, float* score) {
  for (auto row = begin; row < end; ++row) {
    const auto entry = a.batch.paged_index(token, row, a.ratio);
    score[row] = score_row(a, token, a.keys + entry * a.dim);
  }
}

/// Rows [begin, end) of one token, all of them written.
void score_tile(const index_scores_args& a, std::int64_t token, std::int64_t begin,
                std::int64_t end, float* score) {
  std::fill(score + begin, score + end, -std::numeric_limits<float>::infinity());
  if (a.batch.is_padding(token)) return;
  end = std::min(end, a.batch.visible(token, a.ratio));
  if (!a.candidates) return score_range(a, token, begin, end, score);
  const std::int32_t* blocks = a.candidates + token * a.candidate_count;
  for (std::int64_t i = 0; i < a.candidate_count && blocks[i] >= 0; ++i) {
    const auto first = blocks[i] * a.candidate_size;
    if (first >= end) break;
    score_range(a, token, std::max(begin, first), std::min(end, first + a.candidate_size), score);
  }
}

}  // namespace

void check_scores(const batch_view& batch, std::int32_t ratio, std::int64_t first,
                  std::int64_t count, std::int64_t row_limit) {
  for (auto token = first; token < first + count; ++token) {
    if (batch.is_padding(token)) continue;
    const auto visible = batch.visible(token, ratio);
    DI_CHECK(visible <= row_limit, "token {} sees {} rows, the score buffer holds {}", token,
             visible, row_limit);
  }
}

void index_scores_ref(const stream_ref& stream, const index_scores_args& a) {
  check_scores(a.batch, a.ratio, a.first, a.count, a.row_limit);
  const auto tiles = (a.row_limit + tile_rows - 1) / tile_rows;
  stream.for_ranges(a.count * tiles, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const auto local = item / tiles, first = item % tiles * tile_rows;
      score_tile(a, a.first + local, first, std::min(first + tile_rows, a.row_limit),
                 a.score + local * a.row_limit);
    }
  });
}

}  // namespace deepinfer::kernels
