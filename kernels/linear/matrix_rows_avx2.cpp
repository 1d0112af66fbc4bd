#include "kernels/linear/matrix_rows.hpp"

#include <algorithm>

#include <immintrin.h>

#include "kernels/linear/packed_e2m1.hpp"

namespace deepinfer::kernels {
namespace {

/// Whether f32 and bf16 products round once per multiply-add or, as the reference does, twice.
constexpr bool fused = true;
constexpr std::int64_t run_inputs = 128;  ///< of f32 and bf16: what one partial sum covers
constexpr std::int64_t tile_rows = 6;     ///< rows whose sums fill the registers
constexpr std::int64_t together = 2;      ///< panels that share an input while it is in cache
constexpr std::int64_t ahead = 1024;      ///< bytes between a read and the prefetch beside it

template <class T, std::int64_t Count>
using array_of = T[static_cast<std::size_t>(Count)];
template <int Rows, int Panels>
using run_sums = __m256[static_cast<std::size_t>(Panels)][static_cast<std::size_t>(Rows)][2];

__m256 add_product(__m256 value, __m256 weight, __m256 sum) {
  if constexpr (fused) return _mm256_fmadd_ps(value, weight, sum);
  return _mm256_add_ps(sum, _mm256_mul_ps(value, weight));
}

/// Cells: how 16 weights of one input are read, as a low and a high vector. With `scaled`, a run's
/// sum is multiplied by a scale per output before it is added.
struct f32_cells {
  static constexpr std::int64_t bytes = 64;
  static constexpr bool even_and_odd = false, scaled = false;

  static void load(const std::byte* at, __m256& low, __m256& high) {
    low = _mm256_loadu_ps(reinterpret_cast<const float*>(at));
    high = _mm256_loadu_ps(reinterpret_cast<const float*>(at) + 8);
  }
};

/// e2m1 of which a part is decoded.
struct decoded_cells : f32_cells {
  static constexpr bool scaled = true;
};

/// The low vector has the even outputs, the high one the odd.
struct bf16_cells {
  static constexpr std::int64_t bytes = 32;
  static constexpr bool even_and_odd = true, scaled = false;

  static void load(const std::byte* at, __m256& low, __m256& high) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    low = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    high = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(-65536)));
  }
};

/// A run of inputs of one or several panels, for some rows.
struct run_args {
  const std::byte* weight;    ///< of the first panel, at the run
  std::int64_t panel_stride;  ///< bytes
  const float* scale;         ///< [panels, 16] with scale_stride; scaled cells only
  std::int64_t scale_stride;
  const float* const* x;  ///< per row
  std::int64_t at;        ///< first input of the run
  std::int64_t inputs;    ///< of a run
  std::int64_t runs;      ///< that follow one another
  float* total;           ///< [panels, rows, 16]
  std::int64_t total_stride;
  bool first;  ///< the weights are read for the first time: what follows them is fetched ahead
};

/// sum = the sums of one run.
template <class Cells, int Rows, int Panels, bool Fetch>
[[gnu::always_inline]] inline void sum_run(const std::byte* const* weight, const float* const* x,
                                           std::int64_t inputs, run_sums<Rows, Panels>& sum) {
  for (int p = 0; p < Panels; ++p)
    for (int r = 0; r < Rows; ++r) sum[p][r][0] = sum[p][r][1] = _mm256_setzero_ps();
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < inputs; ++i) {
#pragma GCC unroll 4
    for (int p = 0; p < Panels; ++p) {
      const std::byte* from = weight[p] + i * Cells::bytes;
      if constexpr (Fetch) _mm_prefetch(reinterpret_cast<const char*>(from + ahead), _MM_HINT_T0);
      __m256 low, high;
      Cells::load(from, low, high);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const __m256 value = _mm256_broadcast_ss(x[r] + i);
        sum[p][r][0] = add_product(value, low, sum[p][r][0]);
        sum[p][r][1] = add_product(value, high, sum[p][r][1]);
      }
    }
  }
}

/// total += the sums of each run, for Rows rows and Panels panels at once.
template <class Cells, int Rows, int Panels>
void add_run(const run_args& a) {
  array_of<const std::byte*, Panels> weight;
  array_of<const float*, Rows> x;
  const float* scale = a.scale;
  for (int p = 0; p < Panels; ++p) weight[p] = a.weight + p * a.panel_stride;
  for (int r = 0; r < Rows; ++r) x[r] = a.x[r] + a.at;
  for (std::int64_t run = 0; run < a.runs; ++run, scale += panel_width) {
    run_sums<Rows, Panels> sum;
    if (!Cells::scaled && a.first)
      sum_run<Cells, Rows, Panels, true>(weight, x, a.inputs, sum);
    else
      sum_run<Cells, Rows, Panels, false>(weight, x, a.inputs, sum);
    for (int p = 0; p < Panels; ++p) weight[p] += a.inputs * Cells::bytes;
    for (int r = 0; r < Rows; ++r) x[r] += a.inputs;
#pragma GCC unroll 4
    for (int p = 0; p < Panels; ++p)
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r)
        for (int part = 0; part < 2; ++part) {
          float* total = a.total + p * a.total_stride + r * panel_width + 8 * part;
          const __m256 before = _mm256_load_ps(total);
          if constexpr (Cells::scaled) {
            const __m256 factor = _mm256_load_ps(scale + p * a.scale_stride + 8 * part);
            _mm256_store_ps(total, _mm256_fmadd_ps(factor, sum[p][r][part], before));
          } else {
            _mm256_store_ps(total, _mm256_add_ps(before, sum[p][r][part]));
          }
        }
  }
}

/// One panel after the other for the rows of a tile, so that the tile's inputs stay in cache.
template <class Cells, int Rows>
void add_tile(run_args a, std::int64_t panels) {
  for (std::int64_t p = 0; p < panels; ++p) {
    add_run<Cells, Rows, 1>(a);
    a.weight += a.panel_stride;
    a.scale += a.scale_stride;
    a.total += a.total_stride;
  }
}

/// Few rows leave registers for the sums of several panels; many are cut into even tiles.
template <class Cells>
void add_runs(run_args a, std::int64_t panels, std::int64_t rows) {
  if (panels == 4) return add_run<Cells, 1, 4>(a);
  if (panels == 2 && rows == 1) return add_run<Cells, 1, 2>(a);
  if (panels == 2 && rows == 2) return add_run<Cells, 2, 2>(a);
  const auto tiles = (rows + tile_rows - 1) / tile_rows;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const auto count = rows / tiles + (tile < rows % tiles ? 1 : 0);
    switch (count) {
    case 1: add_tile<Cells, 1>(a, panels); break;
    case 2: add_tile<Cells, 2>(a, panels); break;
    case 3: add_tile<Cells, 3>(a, panels); break;
    case 4: add_tile<Cells, 4>(a, panels); break;
    case 5: add_tile<Cells, 5>(a, panels); break;
    default: add_tile<Cells, 6>(a, panels); break;
    }
    a.x += count;
    a.total += count * panel_width;
    a.first = false;
  }
}

/// The sums of panels [panel, panel + panels) to y.
template <class Cells>
void store(const packed_matrix& m, std::int64_t panel, std::int64_t panels, const float* total,
           float* const* y, std::int64_t rows) {
  for (std::int64_t p = 0; p < panels; ++p) {
    const auto first = (panel + p) * panel_width, width = std::min(panel_width, m.out - first);
    for (std::int64_t r = 0; r < rows; ++r, total += panel_width) {
      __m256 low = _mm256_load_ps(total), high = _mm256_load_ps(total + 8);
      if constexpr (Cells::even_and_odd) {
        const __m256 quads = _mm256_unpacklo_ps(low, high), rest = _mm256_unpackhi_ps(low, high);
        low = _mm256_permute2f128_ps(quads, rest, 0x20);
        high = _mm256_permute2f128_ps(quads, rest, 0x31);
      }
      float* to = y[r] + first;
      if (width == panel_width) {
        _mm256_storeu_ps(to, low);
        _mm256_storeu_ps(to + 8, high);
        continue;
      }
      alignas(32) float sums[panel_width];
      _mm256_store_ps(sums, low);
      _mm256_store_ps(sums + 8, high);
      for (std::int64_t i = 0; i < width; ++i) to[i] = sums[i];
    }
  }
}

void clear(float* total, std::int64_t sums) {
  for (std::int64_t i = 0; i < sums; i += 8) _mm256_store_ps(total + i, _mm256_setzero_ps());
}

using totals = float[together * matrix_rows_most * panel_width];

template <class Cells>
void product_of_panels(const packed_matrix& m, std::int64_t panel, std::int64_t panels,
                       const float* const* x, float* const* y, std::int64_t rows) {
  alignas(32) totals total;
  const auto sums = rows * panel_width, panel_bytes = m.in * Cells::bytes;
  clear(total, panels * sums);
  run_args run{
    m.data + panel * panel_bytes, panel_bytes, nullptr, 0, x, 0, run_inputs, 1, total, sums, true};
  for (; run.at < m.in; run.at += run_inputs) {
    run.inputs = std::min(run_inputs, m.in - run.at);
    add_runs<Cells>(run, panels, rows);
    run.weight += run_inputs * Cells::bytes;
  }
  store<Cells>(m, panel, panels, total, y, rows);
}

// --- e2m1 -------------------------------------------------------------------------------------

/// A compiler that knows this power of two makes the product a shift. But shifts share their ports
/// with shuffles, of which decoding has many; integer products have one port of their own.
template <class T>
T hidden(T value) {
  asm("" : "+x"(value));
  return value;
}

/// The two shuffles that map codes to the low and the high bytes of bf16.
struct e2m1_tables {
  __m256i low, high, shift, nibble;

  e2m1_tables()
    : low(_mm256_setr_epi8(0, 0, -128, -64, 0, 64, -128, -64, 0, 0, -128, -64, 0, 64, -128, -64, 0,
                           0, -128, -64, 0, 64, -128, -64, 0, 0, -128, -64, 0, 64, -128, -64)),
      high(_mm256_setr_epi8(0, 63, 63, 63, 64, 64, 64, 64, -128, -65, -65, -65, -64, -64, -64, -64,
                            0, 63, 63, 63, 64, 64, 64, 64, -128, -65, -65, -65, -64, -64, -64,
                            -64)),
      shift(hidden(_mm256_set1_epi32(65536))),
      nibble(hidden(_mm256_set1_epi16(4096))) {}

  __m256i low_codes(__m256i pairs) const { return _mm256_and_si256(pairs, _mm256_set1_epi8(15)); }
  __m256i high_codes(__m256i pairs) const { return low_codes(_mm256_mulhi_epu16(pairs, nibble)); }

  /// 32 codes as bf16: two vectors, the second of the next input.
  void decode(__m256i codes, __m256i* both) const {
    const __m256i a = _mm256_shuffle_epi8(low, codes), b = _mm256_shuffle_epi8(high, codes);
    both[0] = _mm256_unpacklo_epi8(a, b);
    both[1] = _mm256_unpackhi_epi8(a, b);
  }
  /// One of those as f32: 8 outputs each.
  void widen(__m256i both, __m256& first, __m256& second) const {
    first = _mm256_castsi256_ps(_mm256_mullo_epi32(both, shift));
    second = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(-65536)));
  }
};

/// Eight e8m0 codes as f32: 0 is 2^-127 and 255 NaN; both set the same mantissa bit.
__m256 decode_scales(const std::byte* codes) {
  const __m256i code =
    _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  const __m256i special = _mm256_or_si256(_mm256_cmpeq_epi32(code, _mm256_setzero_si256()),
                                          _mm256_cmpeq_epi32(code, _mm256_set1_epi32(255)));
  const __m256i bit = _mm256_and_si256(special, _mm256_set1_epi32(0x00400000));
  return _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(code, 23), bit));
}

/// sum += 32 weights, two inputs from x[r][at] on, for each row.
template <int Rows>
[[gnu::always_inline]] inline void add_codes(const e2m1_tables& tables, __m256i codes,
                                             const float* const* x, std::int64_t at,
                                             __m256 (*sum)[2]) {
  __m256i both[2];
  tables.decode(codes, both);
  for (int i = 0; i < 2; ++i) {
    __m256 low, high;
    tables.widen(both[i], low, high);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const __m256 value = _mm256_broadcast_ss(x[r] + at + i);
      sum[r][0] = _mm256_fmadd_ps(low, value, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(high, value, sum[r][1]);
    }
  }
}

/// Groups that follow one another, of some panels.
struct e2m1_run {
  const std::byte *codes, *scales;  ///< of the first panel
  std::int64_t stride;              ///< bytes from panel to panel
  std::int64_t groups;
  std::int64_t next;  ///< bytes from these panels to those read after them
};

/// total [panels, Rows, 16] += scale * sum for each group, straight from the codes.
template <int Rows, int Panels>
void add_e2m1_groups(const e2m1_run& a, const float* const* x, std::int64_t first, float* total) {
  constexpr std::int64_t groups_ahead = 3;
  const e2m1_tables tables;
  array_of<const float*, Rows> from;
  for (int r = 0; r < Rows; ++r) from[r] = x[r] + first;
  for (std::int64_t g = 0; g < a.groups; ++g) {
    run_sums<Rows, Panels> sum;
    // Near the end of these panels, the next ones.
    const auto wanted = g + groups_ahead;
    const auto skip =
      wanted * e2m1_group_bytes + (wanted < a.groups ? 0 : a.next - a.groups * e2m1_group_bytes);
    for (int p = 0; p < Panels; ++p)
      for (int line = 0; line < 4; ++line)
        _mm_prefetch(reinterpret_cast<const char*>(a.codes + p * a.stride + skip + 64 * line),
                     _MM_HINT_T0);
    for (int p = 0; p < Panels; ++p)
      for (int r = 0; r < Rows; ++r) sum[p][r][0] = sum[p][r][1] = _mm256_setzero_ps();
    for (std::int64_t i = 0; i < e2m1_group; i += 4) {
      const auto* codes = a.codes + g * e2m1_group_bytes + i * 8;
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p) {
        // Sums fill the registers: inputs had better be read where they are needed, and again for
        // each panel.
        if constexpr (Rows == 1)
          asm("" : "+r"(from[0]));
        else
          asm volatile("" ::: "memory");
        const __m256i pairs =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + p * a.stride));
        add_codes<Rows>(tables, tables.low_codes(pairs), from, i, sum[p]);
        add_codes<Rows>(tables, tables.high_codes(pairs), from, i + 2, sum[p]);
      }
    }
    for (int r = 0; r < Rows; ++r) from[r] += e2m1_group;
    for (int p = 0; p < Panels; ++p)
      for (int part = 0; part < 2; ++part) {
        const __m256 factor = decode_scales(a.scales + p * a.stride + g * panel_width + 8 * part);
        for (int r = 0; r < Rows; ++r) {
          float* to = total + (p * Rows + r) * panel_width + 8 * part;
          _mm256_store_ps(to, _mm256_fmadd_ps(factor, sum[p][r][part], _mm256_load_ps(to)));
        }
      }
  }
}

/// Inputs of the last group, those past `in` zero.
void copy_rest(const float* x, std::int64_t in, float* rest) {
  const auto first = in / e2m1_group * e2m1_group;
  for (std::int64_t i = 0; i < e2m1_group; ++i) rest[i] = first + i < in ? x[first + i] : 0.0F;
}

template <int Rows, int Panels>
void e2m1_product_of_few(const packed_matrix& m, std::int64_t panel, const float* const* x,
                         float* const* y) {
  alignas(32) array_of<float, Panels * Rows * panel_width> total;
  clear(total, Panels * Rows * panel_width);
  const auto bytes = e2m1_panel_bytes(m.in), whole = m.in / e2m1_group;
  const auto* codes = m.data + panel * bytes;
  e2m1_run run{codes, codes + e2m1_groups(m.in) * e2m1_group_bytes, bytes, whole, Panels * bytes};
  add_e2m1_groups<Rows, Panels>(run, x, 0, total);
  if (whole * e2m1_group < m.in) {
    array_of<float[e2m1_group], Rows> rest;
    array_of<const float*, Rows> from;
    for (int r = 0; r < Rows; ++r) {
      copy_rest(x[r], m.in, rest[r]);
      from[r] = rest[r];
    }
    run.codes += whole * e2m1_group_bytes;
    run.scales += whole * panel_width;
    run.groups = 1;
    add_e2m1_groups<Rows, Panels>(run, from, 0, total);
  }
  store<f32_cells>(m, panel, Panels, total, y, Rows);
}

constexpr std::int64_t few_rows = 8;  ///< for which decoding each time beats storing

/// At most 8 rows: one or two tiles of up to 4, each from the codes.
void e2m1_product_of_tiles(const packed_matrix& m, std::int64_t panel, const float* const* x,
                           float* const* y, std::int64_t rows) {
  const auto tiles = (rows + 3) / 4;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const auto count = rows / tiles + (tile < rows % tiles ? 1 : 0);
    switch (count) {
    case 1: e2m1_product_of_few<1, 1>(m, panel, x, y); break;
    case 2: e2m1_product_of_few<2, 1>(m, panel, x, y); break;
    case 3: e2m1_product_of_few<3, 1>(m, panel, x, y); break;
    default: e2m1_product_of_few<4, 1>(m, panel, x, y); break;
    }
    x += count;
    y += count;
  }
}

/// `groups` groups of a panel as f32 [32 * groups, 16] and their scales [groups, 16].
void decode_groups(const std::byte* codes, const std::byte* scales, std::int64_t groups,
                   float* weight, float* scale) {
  const e2m1_tables tables;
  for (std::int64_t at = 0; at < groups * e2m1_group_bytes; at += 32, weight += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(codes + at + ahead), _MM_HINT_T0);
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + at));
    __m256i both[4];
    tables.decode(tables.low_codes(pairs), both);
    tables.decode(tables.high_codes(pairs), both + 2);
    for (int i = 0; i < 4; ++i) {
      __m256 low, high;
      tables.widen(both[i], low, high);
      _mm256_store_ps(weight + 16 * i, low);
      _mm256_store_ps(weight + 16 * i + 8, high);
    }
  }
  for (std::int64_t i = 0; i < groups * panel_width; i += 8)
    _mm256_store_ps(scale + i, decode_scales(scales + i));
}

/// Several rows: a part of the panels is decoded once for all.
void e2m1_product_of_panels(const packed_matrix& m, std::int64_t panel, std::int64_t panels,
                            const float* const* x, float* const* y, std::int64_t rows) {
  constexpr std::int64_t part = 4, part_inputs = part * e2m1_group;
  alignas(64) float weight[together][part_inputs * panel_width];
  alignas(32) float scale[together][part * panel_width];
  alignas(32) totals total;
  const auto sums = rows * panel_width, groups = e2m1_groups(m.in);
  clear(total, panels * sums);
  for (std::int64_t first = 0; first < groups; first += part) {
    const auto count = std::min(part, groups - first);
    for (std::int64_t p = 0; p < panels; ++p) {
      const auto* codes = m.data + (panel + p) * e2m1_panel_bytes(m.in);
      decode_groups(codes + first * e2m1_group_bytes,
                    codes + groups * e2m1_group_bytes + first * panel_width, count, weight[p],
                    scale[p]);
    }
    run_args run{reinterpret_cast<const std::byte*>(weight[0]),
                 sizeof(weight[0]),
                 scale[0],
                 part * panel_width,
                 x,
                 first * e2m1_group,
                 e2m1_group,
                 count,
                 total,
                 sums,
                 false};
    const auto left = m.in - run.at;
    run.runs = std::min(count, left / e2m1_group);
    if (run.runs > 0) add_runs<decoded_cells>(run, panels, rows);
    if (run.runs == count) continue;
    run.weight += run.runs * e2m1_group * decoded_cells::bytes;
    run.scale += run.runs * panel_width;
    run.at += run.runs * e2m1_group;
    run.inputs = m.in - run.at;
    run.runs = 1;
    add_runs<decoded_cells>(run, panels, rows);
  }
  store<f32_cells>(m, panel, panels, total, y, rows);
}

}  // namespace

void matrix_rows_avx2(const packed_matrix& m, std::int64_t begin, std::int64_t end,
                      const float* const* x, float* const* y, std::int64_t rows) {
  if (rows == 0) return;
  const auto each = [&](std::int64_t panels, auto&& product) {
    for (; begin + panels <= end; begin += panels) product(begin, panels);
  };
  if (m.type == panel_type::e2m1 && rows == 1) {
    each(4, [&](auto panel, auto) { e2m1_product_of_few<1, 4>(m, panel, x, y); });
    each(2, [&](auto panel, auto) { e2m1_product_of_few<1, 2>(m, panel, x, y); });
    each(1, [&](auto panel, auto) { e2m1_product_of_few<1, 1>(m, panel, x, y); });
    return;
  }
  if (m.type == panel_type::e2m1 && rows <= few_rows) {
    each(1, [&](auto panel, auto) { e2m1_product_of_tiles(m, panel, x, y, rows); });
    return;
  }
  const auto product = [&](std::int64_t panel, std::int64_t panels) {
    if (m.type == panel_type::f32)
      product_of_panels<f32_cells>(m, panel, panels, x, y, rows);
    else if (m.type == panel_type::bf16)
      product_of_panels<bf16_cells>(m, panel, panels, x, y, rows);
    else
      e2m1_product_of_panels(m, panel, panels, x, y, rows);
  };
  if (rows == 1) each(4, product);
  each(2, product);
  each(1, product);
}

}  // namespace deepinfer::kernels
