#include "kernels/linear/linear.hpp"

#include <algorithm>

#include "kernels/common/formats.hpp"
#include "kernels/linear/matrix_rows.hpp"
#include "kernels/linear/panel_product.hpp"

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

  void finish(const float* sums, float* to, std::int64_t width) const {
    for (std::int64_t i = 0; i < width; ++i) {
      const float value = accumulate ? to[i] + sums[i] : sums[i];
      to[i] = bf16 ? bf16_round(value) : value;
    }
  }
};

/// The sums of one panel for one row of int8 activations. The product writes to whole rows of y, so
/// what they held comes back afterwards.
void int8_panel(const product& a, std::int64_t panel, std::int64_t row) {
  const auto first = panel * panel_width, width = std::min(panel_width, a.weight->out - first);
  float* y = a.y + row * a.y_stride;
  float before[panel_width], sums[panel_width];
  std::copy(y + first, y + first + width, before);
  const auto* codes = a.x8.codes + row * a.code_stride;
  const float* scales = a.x8.scales + row * (a.code_stride / int8_group);
  int8_matrix_rows_ref(*a.weight, panel, panel + 1, &codes, &scales, &y, 1);
  std::copy(y + first, y + first + width, sums);
  std::copy(before, before + width, y + first);
  a.finish(sums, y + first, width);
}

void panels_of(const product& a, std::int64_t begin, std::int64_t end) {
  const auto& weight = *a.weight;
  for (auto panel = begin; panel < end; ++panel) {
    if (reads_int8(weight.type)) {
      for (std::int64_t row = 0; row < a.rows; ++row) int8_panel(a, panel, row);
      continue;
    }
    const auto first = panel * panel_width, width = std::min(panel_width, weight.out - first);
    panel_product(
      weight, panel, a.rows, [&](std::int64_t row) { return a.x + row * a.x_stride; },
      [&](std::int64_t row, const float* sums) {
        a.finish(sums, a.y + row * a.y_stride + first, width);
      });
  }
}

}  // namespace

void linear_ref(const stream_ref& stream, const linear_args& a) {
  if (a.rows == 0) return;
  const auto& weight = *a.weight;
  const product whole{&weight,
                      a.x,
                      a.x_stride ? a.x_stride : weight.in,
                      a.x8,
                      int8_padded(weight.in),
                      a.y,
                      a.y_stride ? a.y_stride : weight.out,
                      a.rows,
                      a.accumulate,
                      a.bf16};
  stream.for_ranges(weight.panels(),
                    [&](std::int64_t begin, std::int64_t end) { panels_of(whole, begin, end); });
}

void linears_ref(const stream_ref& stream, const linears_args& a) {
  for (std::int32_t i = 0; i < a.count; ++i) linear_ref(stream, a.products[i]);
}

void grouped_linear_ref(const stream_ref& stream, const grouped_linear_args& a) {
  if (a.rows == 0 || a.groups == 0) return;
  const auto in = a.weights[0].in, out = a.weights[0].out, padded = int8_padded(in);
  const auto panels = a.weights[0].panels();
  stream.for_ranges(a.groups * panels, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const auto group = item / panels, panel = item % panels;
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
      panels_of(part, panel, panel + 1);
    }
  });
}

}  // namespace deepinfer::kernels
