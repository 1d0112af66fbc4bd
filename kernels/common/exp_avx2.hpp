/// exp of eight floats, for the AVX2 twins of attention and of the experts.
///
/// A lane's result depends on that lane only. At most 2 ulp; exp of less than -104 is 0, of more
/// than 89 infinity, NaN stays NaN.
/// Not a contract: everything has internal linkage, for files compiled for AVX2 and FMA only.
#pragma once

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

#include <initializer_list>

namespace deepinfer::kernels {
namespace {

inline __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

inline __m256 exp8(__m256 x) {
  // The bound comes first: max and min return their second operand where one is NaN.
  x = _mm256_max_ps(_mm256_set1_ps(-105.0F), x);
  x = _mm256_min_ps(_mm256_set1_ps(90.0F), x);
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const auto n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0F)), nearest);
  auto r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1F), x);  // ln 2 in two parts: exact
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20F), r);
  auto p = _mm256_set1_ps(1.0F / 5040);
  for (const float term : {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F})
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(term));
  // In two factors, so that small results leave the normal range gradually.
  const auto exponent = _mm256_cvtps_epi32(n);
  const auto half = _mm256_srai_epi32(exponent, 1);
  p = _mm256_mul_ps(p, power_of_two(half));
  return _mm256_mul_ps(p, power_of_two(_mm256_sub_epi32(exponent, half)));
}

}  // namespace
}  // namespace deepinfer::kernels

#endif
