/// Blocks of heads against tiles of rows: the AVX2 form of attend.hpp, and the products that index
/// scores begin with.
///
/// Rows are given by pointers; a tile has at most 64. Several heads are in flight per loaded row.
/// `Ordered` keeps the reference's bits (dot in 16 lanes, multiplications rounded before they are
/// added, libm's exp), which released numerics are compared by; otherwise sums are fused in 8
/// lanes. In both, a head's bits do not depend on the heads beside it.
/// Not a contract: internal linkage, for files compiled for AVX2 and FMA only.
#pragma once

#include "kernels/attention/lanes_avx2.hpp"

#if defined(__AVX2__) && defined(__FMA__)

#include <math.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/common/formats.hpp"
#include "kernels/common/lanes.hpp"

namespace deepinfer::kernels {
namespace {

constexpr std::int64_t tile_rows = 64;
constexpr std::int64_t heads_together = 32;  ///< of one call to products; bounds stack scratch
constexpr std::int64_t chunk = 16;           ///< columns of the value sum at a time

/// out[h * tile_rows + r] = dot(q + h * dim, rows[r]) for four rows.
template <unsigned Heads>
inline void four_rows(const float* q, std::int64_t dim, const float* const* rows, float* out) {
  __m256 sum[Heads][4];
  for (auto& of_head : sum)
    for (auto& it : of_head) it = _mm256_setzero_ps();
  std::int64_t d = 0;
  for (; d + 8 <= dim; d += 8) {
    __m256 x[Heads];
    for (unsigned h = 0; h < Heads; ++h) x[h] = _mm256_loadu_ps(q + h * dim + d);
    for (unsigned r = 0; r < 4; ++r) {
      const auto row = _mm256_loadu_ps(rows[r] + d);
      for (unsigned h = 0; h < Heads; ++h) sum[h][r] = _mm256_fmadd_ps(x[h], row, sum[h][r]);
    }
  }
  if (d < dim) {
    const auto mask = first_lanes(dim - d);
    for (unsigned h = 0; h < Heads; ++h) {
      const auto x = _mm256_maskload_ps(q + h * dim + d, mask);
      for (unsigned r = 0; r < 4; ++r)
        sum[h][r] = _mm256_fmadd_ps(x, _mm256_maskload_ps(rows[r] + d, mask), sum[h][r]);
    }
  }
  for (unsigned h = 0; h < Heads; ++h)
    _mm_storeu_ps(out + h * tile_rows, lane_sums(sum[h][0], sum[h][1], sum[h][2], sum[h][3]));
}

/// The same for one head, in the order of dot (lanes.hpp).
inline void four_rows_in_order(const float* q, std::int64_t dim, const float* const* rows,
                               float* out) {
  __m256 low[4], high[4];
  for (unsigned r = 0; r < 4; ++r) low[r] = high[r] = _mm256_setzero_ps();
  std::int64_t d = 0;
  for (; d + 16 <= dim; d += 16) {
    const auto x = _mm256_loadu_ps(q + d), y = _mm256_loadu_ps(q + d + 8);
    for (unsigned r = 0; r < 4; ++r) {
      low[r] = _mm256_add_ps(low[r], _mm256_mul_ps(x, _mm256_loadu_ps(rows[r] + d)));
      high[r] = _mm256_add_ps(high[r], _mm256_mul_ps(y, _mm256_loadu_ps(rows[r] + d + 8)));
    }
  }
  for (auto* lane : {low, high}) {
    if (d >= dim) break;
    const auto mask = first_lanes(dim - d);
    const auto x = _mm256_maskload_ps(q + d, mask);
    for (unsigned r = 0; r < 4; ++r)
      lane[r] = _mm256_add_ps(lane[r], _mm256_mul_ps(x, _mm256_maskload_ps(rows[r] + d, mask)));
    d += 8;
  }
  for (unsigned r = 0; r < 4; ++r) low[r] = _mm256_add_ps(low[r], high[r]);
  _mm_storeu_ps(out, lane_sums(low[0], low[1], low[2], low[3]));
}

/// out[h * tile_rows + r] = dot(q + h * dim, rows[r]), h < heads <= heads_together, r < count <=
/// tile_rows. Entries of `rows` and `out` up to the next multiple of four are overwritten.
template <bool Ordered>
inline void products(const float* q, std::int64_t heads, std::int64_t dim, const float** rows,
                     std::int64_t count, float* out) {
  for (auto r = count; r % 4 != 0; ++r) rows[r] = rows[count - 1];
  // As many rows as stay in the first-level cache while all heads pass by.
  const auto together = std::clamp<std::int64_t>(4096 / dim / 4 * 4, 4, tile_rows);
  for (std::int64_t first = 0; first < count; first += together) {
    const auto last = std::min(count, first + together);
    for (std::int64_t h = 0, step = 0; h < heads; h += step) {
      const auto left = heads - h;  // 4 = 2 + 2, better than 3 + 1
      step = Ordered || left == 1 ? 1 : left == 2 || left == 4 ? 2 : 3;
      const float* x = q + h * dim;
      float* to = out + h * tile_rows;
      for (auto r = first; r < last; r += 4) {
        if (Ordered)
          four_rows_in_order(x, dim, rows + r, to + r);
        else if (step == 3)
          four_rows<3>(x, dim, rows + r, to + r);
        else if (step == 2)
          four_rows<2>(x, dim, rows + r, to + r);
        else
          four_rows<1>(x, dim, rows + r, to + r);
      }
    }
  }
}

/// Sixteen columns of a tile's rows side by side: rows lie a power of two apart, and would fight
/// for the same lines of the cache.
using packed_columns = float[tile_rows * chunk];

/// Columns [at, at + width), zeros up to `chunk`.
inline void pack_columns(const float* const* rows, std::int64_t count, std::int64_t at,
                         std::int64_t width, float* packed) {
  const auto low = first_lanes(width), high = first_lanes(width - 8);
  for (std::int64_t i = 0; i < count; ++i) {
    _mm256_store_ps(packed + i * chunk, _mm256_maskload_ps(rows[i] + at, low));
    _mm256_store_ps(packed + i * chunk + 8,
                    width > 8 ? _mm256_maskload_ps(rows[i] + at + 8, high) : _mm256_setzero_ps());
  }
}

/// The next columns to pack beside the arithmetic, which leaves room for loads and stores; null:
/// none.
struct packing {
  const float* const* rows;
  std::int64_t at;
  float* to;
};

/// o[h][0..16) = o * decay[h] + sum_i p[h][i] * packed[i][0..16); without o where is_first.
template <bool Ordered, unsigned Heads, bool Packs>
inline void add_values(const float* p, const float* decay, const float* packed, std::int64_t count,
                       float* o, std::int64_t stride, bool is_first, const packing& next) {
  __m256 sum[Heads][2];
  for (unsigned h = 0; h < Heads; ++h)
    for (unsigned v = 0; v < 2; ++v)
      sum[h][v] =
        is_first ? _mm256_setzero_ps()
                 : _mm256_mul_ps(_mm256_loadu_ps(o + h * stride + v * 8), _mm256_set1_ps(decay[h]));
  for (std::int64_t i = 0; i < count; ++i) {
    if (Packs) {
      const float* row = next.rows[i] + next.at;
      _mm256_store_ps(next.to + i * chunk, _mm256_loadu_ps(row));
      _mm256_store_ps(next.to + i * chunk + 8, _mm256_loadu_ps(row + 8));
    }
    auto low = _mm256_load_ps(packed + i * chunk), high = _mm256_load_ps(packed + i * chunk + 8);
    // In registers: GCC would load them again for every head, and loads are what is scarce here.
    asm("" : "+x"(low), "+x"(high));
    for (unsigned h = 0; h < Heads; ++h) {
      const auto weight = _mm256_broadcast_ss(p + h * tile_rows + i);
      sum[h][0] = Ordered ? _mm256_add_ps(sum[h][0], _mm256_mul_ps(weight, low))
                          : _mm256_fmadd_ps(weight, low, sum[h][0]);
      sum[h][1] = Ordered ? _mm256_add_ps(sum[h][1], _mm256_mul_ps(weight, high))
                          : _mm256_fmadd_ps(weight, high, sum[h][1]);
    }
  }
  for (unsigned h = 0; h < Heads; ++h)
    for (unsigned v = 0; v < 2; ++v) _mm256_storeu_ps(o + h * stride + v * 8, sum[h][v]);
}

template <bool Ordered, bool Packs>
inline void add_values(std::int64_t heads, const float* p, const float* decay, const float* packed,
                       std::int64_t count, float* o, std::int64_t stride, bool is_first,
                       const packing& next) {
  const auto add = [&]<unsigned Heads>(std::integral_constant<unsigned, Heads>) {
    add_values<Ordered, Heads, Packs>(p, decay, packed, count, o, stride, is_first, next);
  };
  switch (heads) {
  case 1: return add(std::integral_constant<unsigned, 1>{});
  case 2: return add(std::integral_constant<unsigned, 2>{});
  case 3: return add(std::integral_constant<unsigned, 3>{});
  case 4: return add(std::integral_constant<unsigned, 4>{});
  case 5: return add(std::integral_constant<unsigned, 5>{});
  default: return add(std::integral_constant<unsigned, 6>{});
  }
}

/// o = o * decay + p * rows for a block of heads, all columns.
template <bool Ordered>
inline void add_tile(std::int64_t heads, const float* p, const float* decay,
                     const float* const* rows, std::int64_t count, float* o, std::int64_t dim,
                     bool is_first) {
  alignas(64) packed_columns packed[2];
  pack_columns(rows, count, 0, std::min(chunk, dim), packed[0]);
  int now = 0;
  for (std::int64_t at = 0; at < dim; at += chunk, now = 1 - now) {
    const auto after = at + chunk;
    const bool packs = after + chunk <= dim, is_whole = after <= dim;
    const packing next{rows, after, packed[1 - now]};
    for (std::int64_t h = 0, step = 0; h < heads; h += step) {
      const auto left = heads - h;  // 7 and 8 are 4 + 3 and 4 + 4
      step = !is_whole ? 1 : left == 7 || left == 8 ? 4 : std::min<std::int64_t>(left, 6);
      const float *weight = p + h * tile_rows, *factor = decay + h;
      float* to = o + h * dim + at;
      if (!is_whole) {
        float part[chunk] = {};
        if (!is_first) std::copy_n(to, dim - at, part);
        add_values<Ordered, false>(1, weight, factor, packed[now], count, part, chunk, is_first,
                                   next);
        std::copy_n(part, dim - at, to);
      } else if (packs && h == 0) {
        add_values<Ordered, true>(step, weight, factor, packed[now], count, to, dim, is_first,
                                  next);
      } else {
        add_values<Ordered, false>(step, weight, factor, packed[now], count, to, dim, is_first,
                                   next);
      }
    }
    if (is_whole && !packs && after < dim) pack_columns(rows, count, after, dim - after, next.to);
  }
}

struct running_softmax {
  float top = -1e30F;
  float sum = 0;
};

/// Products of one head to weights, in place; the returned factor is for what was summed before.
inline float weigh(float* p, std::int64_t count, float scale, running_softmax& state) {
  const auto minus_inf = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
  auto most = _mm256_set1_ps(state.top);
  for (std::int64_t i = 0; i < count; i += 8) {
    auto value = _mm256_mul_ps(_mm256_loadu_ps(p + i), _mm256_set1_ps(scale));
    value = _mm256_blendv_ps(minus_inf, value, _mm256_castsi256_ps(first_lanes(count - i)));
    _mm256_storeu_ps(p + i, value);
    most = _mm256_max_ps(value, most);
  }
  const float top = largest_lane(most);
  const float decay = exp_of(state.top - top);
  auto sum = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < count; i += 8) {
    const auto value = exp8(_mm256_sub_ps(_mm256_loadu_ps(p + i), _mm256_set1_ps(top)));
    _mm256_storeu_ps(p + i, value);
    sum = _mm256_add_ps(sum, value);
  }
  state.top = top;
  state.sum = state.sum * decay + lane_total(sum);
  return decay;
}

/// The same with the reference's bits: weights round to bf16 after they are summed.
inline float weigh_in_order(float* p, std::int64_t count, float scale, running_softmax& state) {
  float top = state.top;
  for (std::int64_t i = 0; i < count; ++i) {
    p[i] = scale * p[i];
    top = std::max(top, p[i]);
  }
  const float decay = expf(state.top - top);
  for (std::int64_t i = 0; i < count; ++i) p[i] = expf(p[i] - top);
  state.top = top;
  state.sum = state.sum * decay + sum_in_eights(count, [p](std::int64_t i) { return p[i]; });
  for (std::int64_t i = 0; i < count; ++i) p[i] = bf16_round(p[i]);
  return decay;
}

/// o[i] / sum, rounded to bf16 if Ordered.
template <bool Ordered>
inline void divide(float* o, std::int64_t dim, float sum) {
  const auto by = _mm256_set1_ps(sum);
  for (std::int64_t d = 0; d < dim; d += 8) {
    const auto mask = first_lanes(dim - d);
    const auto value = _mm256_div_ps(_mm256_maskload_ps(o + d, mask), by);
    _mm256_maskstore_ps(o + d, mask, Ordered ? round_to_bf16(value) : value);
  }
}

/// Heads that share one list of rows: [first, first + count) of an array whose sinks repeat.
struct shared_list_heads {
  const float* q;  ///< of head `first`
  float* o;
  const float* sink;  ///< [sinks]
  std::int64_t sinks;
  std::int64_t first;
  std::int64_t count;
  std::int64_t dim;
  float scale;
};

/// `list.rows(begin, end, to)` writes the rows of list entries [begin, end), empty ones left out,
/// and returns how many.
template <bool Ordered, class List>
inline void attend_some(const shared_list_heads& a, std::int64_t entries, const List& list) {
  running_softmax state[tile_rows];
  bool is_empty = true;
  for (std::int64_t begin = 0; begin < entries; begin += tile_rows) {
    const float* rows[tile_rows];
    const auto count = list.rows(begin, std::min(begin + tile_rows, entries), rows);
    if (count == 0) continue;
    for (std::int64_t h = 0; h < a.count; h += heads_together) {
      float p[heads_together * tile_rows], decay[heads_together];
      const auto heads = std::min(heads_together, a.count - h);
      products<Ordered>(a.q + h * a.dim, heads, a.dim, rows, count, p);
      for (std::int64_t i = 0; i < heads; ++i)
        decay[i] = Ordered ? weigh_in_order(p + i * tile_rows, count, a.scale, state[h + i])
                           : weigh(p + i * tile_rows, count, a.scale, state[h + i]);
      add_tile<Ordered>(heads, p, decay, rows, count, a.o + h * a.dim, a.dim, is_empty);
    }
    is_empty = false;
  }
  if (is_empty) return std::fill(a.o, a.o + a.count * a.dim, 0.0F);
  for (std::int64_t h = 0; h < a.count; ++h) {
    const float sink = a.sink[(a.first + h) % a.sinks] - state[h].top;
    divide<Ordered>(a.o + h * a.dim, a.dim, state[h].sum + (Ordered ? expf(sink) : exp_of(sink)));
  }
}

template <bool Ordered, class List>
inline void attend_all(shared_list_heads a, std::int64_t entries, const List& list) {
  const auto end = a.first + a.count;
  while (a.first < end) {
    a.count = std::min(tile_rows, end - a.first);
    attend_some<Ordered>(a, entries, list);
    a.first += a.count;
    a.q += a.count * a.dim;
    a.o += a.count * a.dim;
  }
}

}  // namespace
}  // namespace deepinfer::kernels

#endif
