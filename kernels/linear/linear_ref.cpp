#include "kernels/linear/linear.hpp"

#include <algorithm>

#include "kernels/common/formats.hpp"
#include "kernels/linear/panel_product.hpp"

namespace deepinfer::kernels {

void linear_ref(const stream_ref& stream, const linear_args& a) {
  if (a.rows == 0) return;
  const auto& weight = *a.weight;
  const auto x_stride = a.x_stride ? a.x_stride : weight.in;
  const auto y_stride = a.y_stride ? a.y_stride : weight.out;
  stream.for_ranges(weight.panels(), [&](std::int64_t begin, std::int64_t end) {
    for (auto panel = begin; panel < end; ++panel) {
      const auto first = panel * panel_width;
      const auto width = std::min(panel_width, weight.out - first);
      const auto store = [&](std::int64_t row, const float* sums) {
        float* y = a.y + row * y_stride + first;
        for (std::int64_t i = 0; i < width; ++i) {
          const float value = a.accumulate ? y[i] + sums[i] : sums[i];
          y[i] = a.bf16 ? bf16_round(value) : value;
        }
      };
      panel_product(
        weight, panel, a.rows, [&](std::int64_t row) { return a.x + row * x_stride; }, store);
    }
  });
}

void grouped_linear_ref(const stream_ref& stream, const grouped_linear_args& a) {
  if (a.rows == 0 || a.groups == 0) return;
  const auto in = a.weights[0].in, out = a.weights[0].out;
  const auto panels = a.weights[0].panels();
  stream.for_ranges(a.groups * panels, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const auto group = item / panels, panel = item % panels;
      const auto first = panel * panel_width;
      const auto width = std::min(panel_width, out - first);
      const auto store = [&](std::int64_t row, const float* sums) {
        float* y = a.y + (row * a.groups + group) * out + first;
        for (std::int64_t i = 0; i < width; ++i) y[i] = a.bf16 ? bf16_round(sums[i]) : sums[i];
      };
      panel_product(
        a.weights[group], panel, a.rows,
        [&](std::int64_t row) { return a.x + (row * a.groups + group) * in; }, store);
    }
  });
}

}  // namespace deepinfer::kernels
