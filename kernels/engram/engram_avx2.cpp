#include <algorithm>
#include <cmath>

#include "kernels/common/vector_avx2.hpp"
#include "kernels/engram/engram.hpp"

namespace deepinfer::kernels {
namespace {

/// sum x * q * k * key
float weighted_dot(const float* x, const float* q, const float* k, const float* key,
                   std::int64_t dim) {
  return vector_sum_in_eights(dim, [=](std::int64_t i, auto lanes) {
    const __m256 weight = _mm256_mul_ps(lanes.load(q + i), lanes.load(k + i));
    return _mm256_mul_ps(_mm256_mul_ps(lanes.load(x + i), weight), lanes.load(key + i));
  });
}

float inverse_rms(const float* x, std::int64_t dim, float eps) {
  return 1.0F / std::sqrt(vector_sum_of_squares(x, dim) / static_cast<float>(dim) + eps);
}

}  // namespace

void engram_gate_avx2(const stream_ref& stream, const engram_gate_args& a) {
  const float root = 1.0F / std::sqrt(static_cast<float>(a.dim));
  stream.for_ranges(a.tokens * a.streams, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const auto token = item / a.streams, s = item % a.streams;
      float* x = a.x + item * a.dim;
      const float* key = a.kv + (token * (a.streams + 1) + s) * a.dim;
      const float* value = a.kv + (token * (a.streams + 1) + a.streams) * a.dim;
      const float product =
        weighted_dot(x, a.q_weight + s * a.dim, a.k_weight + s * a.dim, key, a.dim);
      const float rho =
        product * inverse_rms(x, a.dim, a.eps) * inverse_rms(key, a.dim, a.eps) * root;
      const float signed_root = std::copysign(std::sqrt(std::max(std::fabs(rho), 1e-6F)), rho);
      const __m256 gate = _mm256_set1_ps(1.0F / (1.0F + expf(-signed_root)));
      for_vectors(0, a.dim, [&](std::int64_t d, auto lanes) {
        const __m256 sum =
          _mm256_add_ps(lanes.load(x + d), _mm256_mul_ps(gate, lanes.load(value + d)));
        lanes.store(x + d, rounded_if(a.bf16, sum));
      });
    }
  });
}

}  // namespace deepinfer::kernels
