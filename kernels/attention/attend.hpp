/// One head of one query against a list of rows: the loop both attentions share.
///
/// Tiles of 64 list entries; the running maximum starts at -1e30; rows are added in list order, the
/// terms of a tile's denominator as sum_in_eights does. Empty entries leave no trace: the order
/// depends on the rows found, not on the list's width. An empty list gives zeros. Not a contract:
/// sparse_attention and block_attention include it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/common/formats.hpp"
#include "kernels/common/lanes.hpp"

namespace deepinfer::kernels {

struct attend_head {
  const float* q;
  float* o;
  std::int64_t dim;
  float sink;
  float scale;
  bool bf16;
};

/// `entry(i)` is the row of list entry i, or null where it is empty.
template <class Entry>
void attend(const attend_head& h, std::int64_t entries, Entry&& entry) {
  constexpr std::int64_t tile = 64;
  float top = -1e30F, sum = 0;
  bool is_empty = true;
  std::fill(h.o, h.o + h.dim, 0.0F);
  for (std::int64_t begin = 0; begin < entries; begin += tile) {
    const float* rows[tile];
    float p[tile];
    std::int64_t count = 0;
    float new_top = top;
    for (auto i = begin; i < std::min(begin + tile, entries); ++i) {
      const float* row = entry(i);
      if (!row) continue;
      rows[count] = row;
      p[count] = h.scale * dot(h.q, row, h.dim);
      new_top = std::max(new_top, p[count++]);
    }
    if (count == 0) continue;
    is_empty = false;
    const float decay = std::exp(top - new_top);
    top = new_top;
    for (std::int64_t i = 0; i < count; ++i) p[i] = std::exp(p[i] - top);
    // Before the rounding, as the release.
    sum = sum * decay + sum_in_eights(count, [&p](std::int64_t i) { return p[i]; });
    if (h.bf16)
      for (std::int64_t i = 0; i < count; ++i) p[i] = bf16_round(p[i]);
    for (std::int64_t d = 0; d < h.dim; ++d) h.o[d] *= decay;
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t d = 0; d < h.dim; ++d) h.o[d] += p[i] * rows[i][d];
  }
  if (is_empty) return;
  sum += std::exp(h.sink - top);
  for (std::int64_t d = 0; d < h.dim; ++d)
    h.o[d] = h.bf16 ? bf16_round(h.o[d] / sum) : h.o[d] / sum;
}

}  // namespace deepinfer::kernels
