#include <cmath>

#include "kernels/common/vector_avx2.hpp"
#include "kernels/norm/rms_norm.hpp"

namespace deepinfer::kernels {

void rms_norm_avx2(const stream_ref& stream, const rms_norm_args& a) {
  const auto x_stride = a.x_stride ? a.x_stride : a.dim;
  const auto y_stride = a.y_stride ? a.y_stride : a.dim;
  stream.for_ranges(a.rows, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row) {
      const float* x = a.x + row * x_stride;
      float* y = a.y + row * y_stride;
      const float mean = vector_sum_of_squares(x, a.dim) / static_cast<float>(a.dim);
      const __m256 factor = _mm256_set1_ps(1.0F / std::sqrt(mean + a.eps));
      for_vectors(0, a.dim, [&](std::int64_t i, auto lanes) {
        const __m256 scaled = _mm256_mul_ps(lanes.load(x + i), factor);
        lanes.store(y + i, rounded_if(a.bf16, _mm256_mul_ps(lanes.load(a.weight + i), scaled)));
      });
    }
  });
}

}  // namespace deepinfer::kernels
