#include <algorithm>
#include <cstring>

#include <immintrin.h>

#include "kernels/linear/matrix_rows.hpp"
#include "kernels/linear/packed_int8.hpp"

namespace deepinfer::kernels {
namespace {

// A block is up to 4 panels (as many read streams) and 32 rows; it goes through the groups once. In
// a group the weights are read as `code + offset`, unsigned, so that one instruction multiplies
// them with signed activation codes. Sums stay in 16-bit lanes as long as the sums of the true
// products fit; lanes may wrap in between, as -offset * (sum of activation codes), added modulo
// 2^16, undoes it. For few rows the FP4 codes are decoded in registers, for more once per group
// into scratch.
constexpr std::int64_t panels_most = 4, rows_most = 32, quads = code_group / 4;
constexpr std::int64_t tile_rows = 4;
constexpr std::int64_t prefetch_bytes = 768;  ///< ahead in every stream, where memory is the limit

template <std::size_t Rows>
struct tile {
  __m256i dot[Rows][2];  ///< 16 outputs, 32-bit
};

/// What a group needs besides its weights and activations.
struct block_state {
  alignas(64) float total[panels_most][rows_most][panel_width];
  alignas(64) float scale[panels_most][panel_width];
  alignas(64) std::uint8_t code[panels_most][code_group * panel_width];  ///< i4, decoded
  alignas(16) std::int32_t undo[tile_rows][4];
};

__m256i load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

/// Four bytes (or two 16-bit words) in every 32-bit lane.
__m256i repeat4(const void* from) {
  std::int32_t value;
  std::memcpy(&value, from, sizeof(value));
  return _mm256_set1_epi32(value);
}

/// Addresses past the matrix are harmless.
void prefetch(const std::uint8_t* from, std::int64_t bytes) {
  for (std::int64_t at = prefetch_bytes; at < prefetch_bytes + bytes; at += 64)
    _mm_prefetch(reinterpret_cast<const char*>(from + at), _MM_HINT_T0);
}

/// Compilers would otherwise turn chains of integer additions into trees, and spill the leaves.
void keep_chain(__m256i& value) {
  asm("" : "+x"(value));
}

/// i8: |code| <= 64, two products of pairs added fit 16 bits: 4 * 64 * 127 < 2^15. Quads q and
/// q + 4 go together.
struct i8_weights {
  static constexpr int8_layout layout = i8_layout;
  static constexpr std::int64_t prefetch_rows = 2;  ///< at most; it slows more rows down

  static void scales(const std::uint8_t* from, float* to) {
    for (int half = 0; half < 2; ++half) {
      const __m128i bf16 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16 * half));
      const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16);
      _mm256_store_ps(to + 8 * half, _mm256_castsi256_ps(bits));
    }
  }
  static const std::uint8_t* prepare(const std::uint8_t* group, std::uint8_t*) { return group; }
  /// Of quads q and q + 4: -64 * (x0 + x1), -64 * (x2 + x3).
  static void undo(const std::int8_t* x, std::int32_t* to) {
    const __m256i sums = _mm256_maddubs_epi16(_mm256_set1_epi8(64), load(x));
    const __m128i pairs =
      _mm_add_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm_sub_epi16(_mm_setzero_si128(), pairs));
  }
  template <std::size_t Rows>
  static void multiply(const std::uint8_t* w, const std::int8_t* const* x,
                       const std::int32_t (*undo)[4], tile<Rows>& sums) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (std::size_t r = 0; r < Rows; ++r) sums.dot[r][0] = sums.dot[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (std::int64_t q = 0; q < quads / 2; ++q) {
      const __m256i low[2] = {load(w + 64 * q), load(w + 64 * q + 32)};
      const __m256i high[2] = {load(w + 64 * q + 256), load(w + 64 * q + 288)};
#pragma GCC unroll 4
      for (std::size_t r = 0; r < Rows; ++r) {
        const __m256i x_low = repeat4(x[r] + 4 * q), x_high = repeat4(x[r] + 4 * q + 16);
        const __m256i start = repeat4(&undo[r][q]);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          __m256i pairs = _mm256_add_epi16(start, _mm256_maddubs_epi16(low[half], x_low));
          pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(high[half], x_high));
          sums.dot[r][half] = _mm256_add_epi32(sums.dot[r][half], _mm256_madd_epi16(pairs, ones));
          keep_chain(sums.dot[r][half]);
        }
      }
    }
  }
};

/// i4: |code| <= 12, eight products of pairs added fit 16 bits: 16 * 12 * 127 < 2^15.
template <bool IsDecoded>
struct i4_weights {
  static constexpr int8_layout layout = i4_layout;
  static constexpr std::int64_t prefetch_rows = 16;

  /// Codes + 12 of both halves of a quad.
  static void decode(const std::uint8_t* from, __m256i (&halves)[2]) {
    const __m256i table = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m256i nibble = _mm256_set1_epi8(15), pairs = load(from);
    halves[0] = _mm256_shuffle_epi8(table, _mm256_and_si256(pairs, nibble));
    halves[1] = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(pairs, 4), nibble));
  }
  static const std::uint8_t* prepare(const std::uint8_t* group, std::uint8_t* code) {
    if constexpr (!IsDecoded) return group;
    for (std::int64_t q = 0; q < quads; ++q) {
      __m256i halves[2];
      decode(group + 32 * q, halves);
      for (int half = 0; half < 2; ++half)
        _mm256_store_si256(reinterpret_cast<__m256i*>(code + 64 * q + 32 * half), halves[half]);
    }
    return code;
  }
  /// 2^n / 2 from the bits of 2^n: n = 0 is subnormal, 255 NaN.
  static void scales(const std::uint8_t* from, float* to) {
    const __m256i infinity = _mm256_set1_epi32(0x7f800000), least = _mm256_set1_epi32(0x00400000);
    for (int half = 0; half < 2; ++half) {
      const __m128i e8m0 = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 8 * half));
      const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(e8m0), 23);
      const __m256i value =
        _mm256_or_si256(_mm256_max_epi32(bits, least), _mm256_cmpeq_epi32(bits, infinity));
      _mm256_store_ps(to + 8 * half,
                      _mm256_mul_ps(_mm256_castsi256_ps(value), _mm256_set1_ps(0.5F)));
    }
  }
  /// -12 * the sums of x0 + x1 and of x2 + x3 over the quads.
  static void undo(const std::int8_t* x, std::int32_t* to) {
    const __m256i sums = _mm256_maddubs_epi16(_mm256_set1_epi8(12), load(x));
    __m128i pairs = _mm_add_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    pairs = _mm_add_epi16(pairs, _mm_shuffle_epi32(pairs, 0x4e));
    pairs = _mm_add_epi16(pairs, _mm_shuffle_epi32(pairs, 0xb1));
    *to = _mm_cvtsi128_si32(_mm_sub_epi16(_mm_setzero_si128(), pairs));
  }
  template <std::size_t Rows>
  static void multiply(const std::uint8_t* w, const std::int8_t* const* x,
                       const std::int32_t (*undo)[4], tile<Rows>& sums) {
    for (std::size_t r = 0; r < Rows; ++r) sums.dot[r][0] = sums.dot[r][1] = repeat4(&undo[r][0]);
#pragma GCC unroll 8
    for (std::int64_t q = 0; q < quads; ++q) {
      __m256i weight[2];
      if constexpr (IsDecoded) {
        weight[0] = load(w + 64 * q), weight[1] = load(w + 64 * q + 32);
      } else {
        decode(w + 32 * q, weight);
      }
#pragma GCC unroll 4
      for (std::size_t r = 0; r < Rows; ++r) {
        const __m256i value = repeat4(x[r] + 4 * q);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          sums.dot[r][half] =
            _mm256_add_epi16(sums.dot[r][half], _mm256_maddubs_epi16(weight[half], value));
          keep_chain(sums.dot[r][half]);
        }
      }
    }
    const __m256i ones = _mm256_set1_epi16(1);
    for (std::size_t r = 0; r < Rows; ++r)
      for (int half = 0; half < 2; ++half)
        sums.dot[r][half] = _mm256_madd_epi16(sums.dot[r][half], ones);
  }
};

/// total = fma(dot, scale_x * scale, total)
void add_dot(__m256i dot, float scale_x, const float* scale, float* total) {
  const __m256 factor = _mm256_mul_ps(_mm256_set1_ps(scale_x), _mm256_load_ps(scale));
  _mm256_store_ps(total, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), factor, _mm256_load_ps(total)));
}

/// One group of `Rows` rows, `first` in the block, against its panels.
template <class Weights, std::size_t Rows>
void add_rows(block_state& s, const std::uint8_t* const* w, std::int64_t panels,
              const std::int8_t* const* codes, const float* const* scales, std::int64_t first,
              std::int64_t group) {
  const std::int8_t* x[Rows];
  for (std::size_t r = 0; r < Rows; ++r) {
    x[r] = codes[r] + group * code_group;
    Weights::undo(x[r], s.undo[r]);
  }
  for (std::int64_t p = 0; p < panels; ++p) {
    tile<Rows> sums;
    Weights::multiply(w[p], x, s.undo, sums);
    auto* total = s.total[p] + first;
    for (std::size_t r = 0; r < Rows; ++r)
      for (int half = 0; half < 2; ++half)
        add_dot(sums.dot[r][half], scales[r][group], s.scale[p] + 8 * half, total[r] + 8 * half);
  }
}

template <class Weights>
void add_group(block_state& s, const std::uint8_t* const* w, std::int64_t panels,
               const std::int8_t* const* codes, const float* const* scales, std::int64_t rows,
               std::int64_t group) {
  std::int64_t first = 0;
  for (; first + tile_rows <= rows; first += tile_rows)
    add_rows<Weights, tile_rows>(s, w, panels, codes + first, scales + first, first, group);
  switch (rows - first) {
  case 3: return add_rows<Weights, 3>(s, w, panels, codes + first, scales + first, first, group);
  case 2: return add_rows<Weights, 2>(s, w, panels, codes + first, scales + first, first, group);
  case 1: return add_rows<Weights, 1>(s, w, panels, codes + first, scales + first, first, group);
  default: return;
  }
}

/// Panels panel, panel + step, ... of a matrix against rows: as many read streams.
template <class Weights>
void multiply_block(const packed_matrix& m, std::int64_t panel, std::int64_t step,
                    std::int64_t panels, const std::int8_t* const* codes,
                    const float* const* scales, float* const* y, std::int64_t rows) {
  constexpr auto layout = Weights::layout;
  block_state s;
  const auto groups = (m.in + code_group - 1) / code_group;
  const auto* base = reinterpret_cast<const std::uint8_t*>(m.data) + panel * layout.stride(m.in);
  const auto stride = step * layout.stride(m.in);
  for (std::int64_t p = 0; p < panels; ++p)
    std::memset(s.total[p], 0, static_cast<std::size_t>(rows) * sizeof(s.total[p][0]));
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::uint8_t* w[panels_most];
    for (std::int64_t p = 0; p < panels; ++p) {
      const auto* code = base + p * stride + layout.codes_at(group);
      if (rows <= Weights::prefetch_rows) prefetch(code, layout.group_bytes);
      Weights::scales(base + p * stride + layout.scales_at(group), s.scale[p]);
      w[p] = Weights::prepare(code, s.code[p]);
    }
    add_group<Weights>(s, w, panels, codes, scales, rows, group);
  }
  for (std::int64_t p = 0; p < panels; ++p) {
    const auto first = (panel + p * step) * panel_width;
    const auto width = std::min(panel_width, m.out - first);
    for (std::int64_t r = 0; r < rows; ++r)
      std::memcpy(y[r] + first, s.total[p][r], static_cast<std::size_t>(width) * sizeof(float));
  }
}

template <class Weights>
void multiply_panels(const packed_matrix& m, std::int64_t begin, std::int64_t end,
                     const std::int8_t* const* codes, const float* const* scales, float* const* y,
                     std::int64_t rows) {
  const auto step = (end - begin + panels_most - 1) / panels_most;
  for (auto panel = begin; panel < begin + step; ++panel)
    for (std::int64_t r = 0; r < rows; r += rows_most)
      multiply_block<Weights>(m, panel, step, (end - panel + step - 1) / step, codes + r,
                              scales + r, y + r, std::min(rows_most, rows - r));
}

}  // namespace

void int8_matrix_rows_avx2(const packed_matrix& matrix, std::int64_t begin, std::int64_t end,
                           const std::int8_t* const* codes, const float* const* scales,
                           float* const* y, std::int64_t rows) {
  if (matrix.type == panel_type::i8)
    multiply_panels<i8_weights>(matrix, begin, end, codes, scales, y, rows);
  else if (rows > tile_rows)
    multiply_panels<i4_weights<true>>(matrix, begin, end, codes, scales, y, rows);
  else
    multiply_panels<i4_weights<false>>(matrix, begin, end, codes, scales, y, rows);
}

}  // namespace deepinfer::kernels
