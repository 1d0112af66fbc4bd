/// The one inner loop of the reference products: a panel of 16 outputs against any number of rows.
///
/// Order per output and row, f32 and bf16: a partial sum for each run of 128 inputs, in input
/// order; partial sums added in order. e2m1: for each scale group of 32 inputs a sum from 0 by
/// fused multiply-adds, in input order; then total = fma(scale, sum, total), in group order.
/// The AVX2 twins keep these orders; for f32 and bf16 they may round once per multiply-add where
/// this rounds twice (matrix_rows_avx2.cpp). Rows only share the loaded weights, so a row's bits do
/// not depend on the others.
/// Not a contract: linear and expert_ffn include it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/common/formats.hpp"
#include "kernels/linear/packed_e2m1.hpp"
#include "kernels/linear/packed_matrix.hpp"

namespace deepinfer::kernels {

/// Four lanes; GCC and Clang map it to one vector register.
using lane4 = float __attribute__((vector_size(16)));

inline constexpr std::int64_t partial_inputs = 128;
inline constexpr std::int64_t panel_rows = 16;  ///< rows that pass over a run while it is in cache

inline lane4 load4(const float* from) {
  lane4 value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

inline lane4 load4(const std::uint16_t* from) {
  using half4 = std::uint16_t __attribute__((vector_size(8)));
  using word4 = std::uint32_t __attribute__((vector_size(16)));
  half4 codes;
  std::memcpy(&codes, from, sizeof(codes));
  const word4 bits = __builtin_convertvector(codes, word4) << 16;
  lane4 value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// total[r] += sum over `count` inputs, for Rows rows at once.
template <std::size_t Rows, class Cell>
void add_partial(const Cell* weight, const float* const* x, std::int64_t at, std::int64_t count,
                 float (*total)[panel_width]) {
  lane4 sum[Rows][4] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    const Cell* w = weight + i * panel_width;
    const lane4 w0 = load4(w), w1 = load4(w + 4), w2 = load4(w + 8), w3 = load4(w + 12);
#pragma GCC unroll 4
    for (std::size_t r = 0; r < Rows; ++r) {
      const float v = x[r][at + i];
      const lane4 value = {v, v, v, v};
      sum[r][0] += value * w0;
      sum[r][1] += value * w1;
      sum[r][2] += value * w2;
      sum[r][3] += value * w3;
    }
  }
  for (std::size_t r = 0; r < Rows; ++r)
    for (int part = 0; part < 4; ++part) {
      const lane4 sums = load4(total[r] + 4 * part) + sum[r][part];
      std::memcpy(total[r] + 4 * part, &sums, sizeof(sums));
    }
}

template <class Cell, class Row, class Sink>
void panel_product_of(const Cell* weight, std::int64_t in, std::int64_t rows, Row&& row,
                      Sink&& sink) {
  for (std::int64_t first = 0; first < rows; first += panel_rows) {
    const auto count = rows - first < panel_rows ? rows - first : panel_rows;
    const float* x[panel_rows];
    float total[panel_rows][panel_width] = {};
    for (std::int64_t r = 0; r < count; ++r) x[r] = row(first + r);
    for (std::int64_t at = 0; at < in; at += partial_inputs) {
      const auto inputs = in - at < partial_inputs ? in - at : partial_inputs;
      const Cell* w = weight + at * panel_width;
      std::int64_t r = 0;
      for (; r + 2 <= count; r += 2) add_partial<2>(w, x + r, at, inputs, total + r);
      if (r < count) add_partial<1>(w, x + r, at, inputs, total + r);
    }
    for (std::int64_t r = 0; r < count; ++r) sink(first + r, total[r]);
  }
}

/// The weights of `count` inputs of one scale group, without their scales.
inline void decode_e2m1(const std::byte* panel, std::int64_t at, std::int64_t count,
                        float (*weight)[panel_width]) {
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t o = 0; o < panel_width; ++o) {
      const auto place = place_of_e2m1(o, at + i);
      const auto pair = static_cast<std::uint8_t>(panel[place.byte]);
      weight[i][o] = e2m1_decode(static_cast<std::uint8_t>(place.high ? pair >> 4 : pair & 15));
    }
}

template <class Row, class Sink>
void e2m1_panel_product(const std::byte* panel, std::int64_t in, std::int64_t rows, Row&& row,
                        Sink&& sink) {
  const auto* scales = panel + e2m1_groups(in) * e2m1_group_bytes;
  for (std::int64_t first = 0; first < rows; first += panel_rows) {
    const auto last = rows - first < panel_rows ? rows : first + panel_rows;
    float total[panel_rows][panel_width] = {};
    for (std::int64_t at = 0; at < in; at += e2m1_group) {
      const auto count = in - at < e2m1_group ? in - at : e2m1_group;
      const auto* scale = scales + at / e2m1_group * panel_width;
      float weight[e2m1_group][panel_width];
      decode_e2m1(panel, at, count, weight);
      for (auto r = first; r < last; ++r) {
        const float* x = row(r) + at;
        for (std::int64_t o = 0; o < panel_width; ++o) {
          float sum = 0;
          for (std::int64_t i = 0; i < count; ++i) sum = std::fma(x[i], weight[i][o], sum);
          float& t = total[r - first][o];
          t = std::fma(e8m0_decode(static_cast<std::uint8_t>(scale[o])), sum, t);
        }
      }
    }
    for (auto r = first; r < last; ++r) sink(r, total[r - first]);
  }
}

/// For r in [0, rows): sink(r, sums) with the panel's 16 sums of the input row(r). The last panel's
/// surplus sums are 0.
template <class Row, class Sink>
void panel_product(const packed_matrix& m, std::int64_t panel, std::int64_t rows, Row&& row,
                   Sink&& sink) {
  const auto at = panel * m.in * panel_width;
  if (m.type == panel_type::e2m1)
    e2m1_panel_product(m.data + panel * e2m1_panel_bytes(m.in), m.in, rows, row, sink);
  else if (m.type == panel_type::bf16)
    panel_product_of(reinterpret_cast<const std::uint16_t*>(m.data) + at, m.in, rows, row, sink);
  else
    panel_product_of(reinterpret_cast<const float*>(m.data) + at, m.in, rows, row, sink);
}

}  // namespace deepinfer::kernels
