#include <immintrin.h>

#include "kernels/linear/head.hpp"

namespace deepinfer::kernels {

namespace {

constexpr std::int64_t block = 256;

/// The largest of x[0, count) and `floor`; NaN never.
float largest(const float* x, std::int64_t count, float floor) {
  auto a = _mm256_set1_ps(floor), b = a, c = a, d = a;
  std::int64_t i = 0;
  // maxps gives its second operand where either is NaN.
  for (; i + 32 <= count; i += 32) {
    a = _mm256_max_ps(_mm256_loadu_ps(x + i), a);
    b = _mm256_max_ps(_mm256_loadu_ps(x + i + 8), b);
    c = _mm256_max_ps(_mm256_loadu_ps(x + i + 16), c);
    d = _mm256_max_ps(_mm256_loadu_ps(x + i + 24), d);
  }
  a = _mm256_max_ps(_mm256_max_ps(a, b), _mm256_max_ps(c, d));
  auto half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  float most = _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
  for (; i < count; ++i)
    if (x[i] > most) most = x[i];
  return most;
}

std::int64_t first_largest(const float* x, std::int64_t dim) {
  float best = -__builtin_inff();
  std::int64_t from = 0;  // the first block with the best value, if it is above -inf
  for (std::int64_t begin = 0; begin < dim; begin += block) {
    const auto most = largest(x + begin, dim - begin < block ? dim - begin : block, best);
    if (most > best) {
      best = most;
      from = begin;
    }
  }
  for (auto i = from; i < dim; ++i)
    if (x[i] == best) return i;
  return 0;
}

}  // namespace

void argmax_avx2(const stream_ref& stream, const argmax_args& a) {
  const auto x_stride = a.x_stride ? a.x_stride : a.dim;
  const auto id_stride = a.id_stride ? a.id_stride : 1;
  stream.for_ranges(a.rows, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row)
      a.id[row * id_stride] = static_cast<std::int32_t>(first_largest(a.x + row * x_stride, a.dim));
  });
}

}  // namespace deepinfer::kernels
