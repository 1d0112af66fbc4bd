#include "kernels/norm/rms_norm.hpp"

#include <cmath>

#include "kernels/common/formats.hpp"
#include "kernels/common/lanes.hpp"

namespace deepinfer::kernels {

void rms_norm_ref(const stream_ref& stream, const rms_norm_args& a) {
  const auto x_stride = a.x_stride ? a.x_stride : a.dim;
  const auto y_stride = a.y_stride ? a.y_stride : a.dim;
  stream.for_ranges(a.rows, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row) {
      const float* x = a.x + row * x_stride;
      float* y = a.y + row * y_stride;
      const float mean = sum_of_squares(x, a.dim) / static_cast<float>(a.dim);
      const float factor = 1.0F / std::sqrt(mean + a.eps);
      for (std::int64_t i = 0; i < a.dim; ++i) y[i] = a.weight[i] * (x[i] * factor);
      if (a.bf16)
        for (std::int64_t i = 0; i < a.dim; ++i) y[i] = bf16_round(y[i]);
    }
  });
}

}  // namespace deepinfer::kernels
