// What attention and the indexer have to move and to compute: each listed row once per token.
#include <algorithm>

#include "kernels/attention/index_scores.hpp"
#include "kernels/attention/sparse_attention.hpp"

namespace deepinfer::kernels {

namespace {

/// `rows` of `dim`, each read once and met by `heads` heads, `flops` each per entry.
work_cost cost_of_rows(std::int64_t rows, std::int64_t heads, std::int64_t dim,
                       std::int64_t flops) {
  return {rows * dim * std::int64_t{sizeof(float)}, rows * heads * dim * flops, 0};
}

}  // namespace

work_cost sparse_attention_args::cost() const {
  std::int64_t rows = 0;
  for (std::int64_t token = 0; token < batch.tokens; ++token) {
    if (batch.is_padding(token)) continue;
    rows += std::max<std::int64_t>(0, batch.position[token] + 1 - oldest(token));
    const auto* list = selected + token * selected_count;
    rows += std::count_if(list, list + selected_count, [](std::int32_t row) { return row >= 0; });
  }
  return cost_of_rows(rows, heads, dim, 4);
}

work_cost block_attention_args::cost() const {
  std::int64_t rows = 0;
  for (std::int32_t sequence = 0; sequence < sequences; ++sequence)
    if (slot[sequence] >= 0 && position[sequence] >= 0)
      rows += std::max<std::int64_t>(0, position[sequence] + 1 - oldest(sequence)) + block;
  return cost_of_rows(rows, heads * block, dim, 4);
}

work_cost index_scores_args::cost() const {
  std::int64_t rows = 0;
  for (auto token = first; token < first + count; ++token) {
    if (batch.is_padding(token)) continue;
    const auto visible = batch.visible(token, ratio);
    if (!candidates) {
      rows += visible;
      continue;
    }
    const auto* blocks = candidates + token * candidate_count;
    for (std::int64_t i = 0; i < candidate_count && blocks[i] >= 0; ++i)
      rows += std::clamp<std::int64_t>(visible - blocks[i] * candidate_size, 0, candidate_size);
  }
  return cost_of_rows(rows, heads, dim, 2);
}

}  // namespace deepinfer::kernels
