#include "kernels/attention/rope.hpp"
#include "kernels/common/vector_avx2.hpp"

namespace deepinfer::kernels {

void rope_avx2(const stream_ref& stream, const rope_args& a) {
  const __m256 direction = _mm256_set1_ps(a.inverse ? -1.0F : 1.0F);
  stream.for_ranges(a.tokens * a.heads, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const float* angle = a.angles + item / a.heads * a.rotary;
      float* x = a.x + item * a.dim + (a.dim - a.rotary);
      for_vectors(0, a.rotary, [&](std::int64_t i, auto lanes) {
        const __m256 turn = lanes.load(angle + i), pair = lanes.load(x + i);
        const __m256 cosine = _mm256_moveldup_ps(turn);
        const __m256 sine = _mm256_mul_ps(direction, _mm256_movehdup_ps(turn));
        const __m256 swapped = _mm256_permute_ps(pair, 0xb1);
        // Even lanes: even * cos - odd * sin; odd lanes: odd * cos + even * sin.
        const __m256 turned =
          _mm256_addsub_ps(_mm256_mul_ps(pair, cosine), _mm256_mul_ps(swapped, sine));
        lanes.store(x + i, rounded_if(a.bf16, turned));
      });
    }
  });
}

}  // namespace deepinfer::kernels
