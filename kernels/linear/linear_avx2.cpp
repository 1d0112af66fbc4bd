#include <algorithm>

#include "kernels/common/vector_avx2.hpp"
#include "kernels/linear/linear.hpp"
#include "kernels/linear/matrix_rows.hpp"

namespace deepinfer::kernels {
namespace {

/// One matrix and the rows it maps, all strides given.
struct product {
  const packed_matrix* weight;
  const float* x;
  std::int64_t x_stride;
  int8_rows x8;
  std::int64_t code_stride;
  float* y;
  std::int64_t y_stride;
  std::int64_t rows;
  bool accumulate, bf16;
};

product product_of(const linear_args& a) {
  const auto& weight = *a.weight;
  return {&weight,
          a.x,
          a.x_stride ? a.x_stride : weight.in,
          a.x8,
          int8_padded(weight.in),
          a.y,
          a.y_stride ? a.y_stride : weight.out,
          a.rows,
          a.accumulate,
          a.bf16};
}

/// Pointers to a block of rows.
struct row_block {
  const float* x[matrix_rows_most];
  const std::int8_t* codes[matrix_rows_most];
  const float* scales[matrix_rows_most];
  float* y[matrix_rows_most];
  std::int64_t rows;
};

void point_to(const product& a, std::int64_t first, row_block& block) {
  block.rows = std::min(matrix_rows_most, a.rows - first);
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const auto row = first + r;
    block.y[r] = a.y + row * a.y_stride;
    if (reads_int8(a.weight->type)) {
      block.codes[r] = a.x8.codes + row * a.code_stride;
      block.scales[r] = a.x8.scales + row * (a.code_stride / int8_group);
    } else {
      block.x[r] = a.x + row * a.x_stride;
    }
  }
}

void multiply(const packed_matrix& weight, std::int64_t begin, std::int64_t end,
              const row_block& block) {
  if (reads_int8(weight.type))
    int8_matrix_rows_avx2(weight, begin, end, block.codes, block.scales, block.y, block.rows);
  else
    matrix_rows_avx2(weight, begin, end, block.x, block.y, block.rows);
}

/// Few panels at a time, so that what a product needs besides is done while y is in cache.
constexpr std::int64_t finish_panels = 8, finish_width = finish_panels * panel_width;

void multiply_and_finish(const product& a, std::int64_t panel, std::int64_t end,
                         const row_block& block) {
  float before[matrix_rows_most][finish_width];
  for (; panel < end; panel += finish_panels) {
    const auto stop = std::min(end, panel + finish_panels), first = panel * panel_width;
    const auto width = std::min(stop * panel_width, a.weight->out) - first;
    if (a.accumulate)
      for (std::int64_t r = 0; r < block.rows; ++r)
        std::copy(block.y[r] + first, block.y[r] + first + width, before[r]);
    multiply(*a.weight, panel, stop, block);
    for (std::int64_t r = 0; r < block.rows; ++r)
      for_vectors(0, width, [&](std::int64_t i, auto lanes) {
        float* y = block.y[r] + first + i;
        __m256 value = lanes.load(y);
        if (a.accumulate) value = _mm256_add_ps(lanes.load(before[r] + i), value);
        lanes.store(y, rounded_if(a.bf16, value));
      });
  }
}

void panels_of(const product& a, std::int64_t begin, std::int64_t end) {
  row_block block;
  for (std::int64_t first = 0; first < a.rows; first += matrix_rows_most) {
    point_to(a, first, block);
    if (a.accumulate || a.bf16)
      multiply_and_finish(a, begin, end, block);
    else
      multiply(*a.weight, begin, end, block);
  }
}

/// About the time of a panel: reading it, or computing on it where that takes longer.
std::int64_t panel_cost(const linear_args& a) {
  std::int64_t reading = 0, row = 8;
  switch (a.weight->type) {
  case panel_type::f32: reading = 60; break;
  case panel_type::bf16: reading = 30; break;
  case panel_type::e2m1: reading = 20, row = 9; break;
  case panel_type::i8: reading = 17, row = 5; break;
  case panel_type::i4: reading = 10, row = 5; break;
  }
  return a.rows == 0 ? 0 : a.weight->in * std::max(reading, row * a.rows);
}

}  // namespace

void linear_avx2(const stream_ref& stream, const linear_args& a) {
  linears_avx2(stream, {&a, 1});
}

void linears_avx2(const stream_ref& stream, const linears_args& a) {
  std::int64_t total = 0;
  for (std::int32_t i = 0; i < a.count; ++i)
    if (a.products[i].rows > 0) total += panel_cost(a.products[i]) * a.products[i].weight->panels();
  // A range of the whole cost has the panels that begin in it.
  stream.for_ranges(total, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t done = 0;
    for (std::int32_t i = 0; i < a.count && done < end; ++i) {
      const auto& it = a.products[i];
      if (it.rows == 0) continue;
      const auto each = panel_cost(it), panels = it.weight->panels();
      const auto from = std::clamp<std::int64_t>((begin - done + each - 1) / each, 0, panels);
      const auto to = std::clamp<std::int64_t>((end - done + each - 1) / each, 0, panels);
      if (from < to) panels_of(product_of(it), from, to);
      done += each * panels;
    }
  });
}

void grouped_linear_avx2(const stream_ref& stream, const grouped_linear_args& a) {
  if (a.rows == 0 || a.groups == 0) return;
  const auto in = a.weights[0].in, out = a.weights[0].out, padded = int8_padded(in);
  const auto panels = a.weights[0].panels();
  stream.for_ranges(a.groups * panels, [&](std::int64_t begin, std::int64_t end) {
    for (auto group = begin / panels; group * panels < end; ++group) {
      const auto& weight = a.weights[group];
      product part{&weight,        a.x,    a.groups * in, a.x8,  a.groups * padded, a.y,
                   a.groups * out, a.rows, false,         a.bf16};
      if (reads_int8(weight.type)) {
        part.x8.codes += group * padded;
        part.x8.scales += group * (padded / int8_group);
      } else {
        part.x += group * in;
      }
      part.y += group * out;
      const auto first = group * panels;
      panels_of(part, std::max(begin - first, std::int64_t{0}), std::min(end - first, panels));
    }
  });
}

}  // namespace deepinfer::kernels
