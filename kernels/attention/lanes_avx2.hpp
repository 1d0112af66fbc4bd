/// Eight floats at a time for the AVX2 twins of attention, beside vector_avx2.hpp: exp and sums.
///
/// Every lane's result depends on that lane only, so a value has the same bits wherever it stands
/// in a row and however long the row is. exp8: at most 2 ulp; exp of less than -104 is 0, of more
/// than 89 infinity, NaN stays NaN. lane_sums adds in the order of lane_sum (lanes.hpp) once lanes
/// i and i + 8 are added.
/// Not a contract: everything has internal linkage, for files compiled for AVX2 and FMA only.
#pragma once

#if defined(__AVX2__) && defined(__FMA__)

#include <initializer_list>

#include "kernels/common/vector_avx2.hpp"

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

inline float exp_of(float x) {
  return _mm256_cvtss_f32(exp8(_mm256_set1_ps(x)));
}

/// The sums of the lanes of four vectors.
inline __m128 lane_sums(__m256 a, __m256 b, __m256 c, __m256 d) {
  const auto ac =
    _mm256_add_ps(_mm256_permute2f128_ps(a, c, 0x20), _mm256_permute2f128_ps(a, c, 0x31));
  const auto bd =
    _mm256_add_ps(_mm256_permute2f128_ps(b, d, 0x20), _mm256_permute2f128_ps(b, d, 0x31));
  // a0+a2 a1+a3 b0+b2 b1+b3 | the same of c and d
  const auto twos = _mm256_add_ps(_mm256_shuffle_ps(ac, bd, _MM_SHUFFLE(1, 0, 1, 0)),
                                  _mm256_shuffle_ps(ac, bd, _MM_SHUFFLE(3, 2, 3, 2)));
  const auto low = _mm256_castps256_ps128(twos), high = _mm256_extractf128_ps(twos, 1);
  return _mm_add_ps(_mm_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0)),
                    _mm_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1)));
}

inline float lane_total(__m256 x) {
  const auto fours = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const auto twos = _mm_add_ps(fours, _mm_movehl_ps(fours, fours));
  return _mm_cvtss_f32(_mm_add_ss(twos, _mm_movehdup_ps(twos)));
}

/// NaN lanes lose.
inline float largest_lane(__m256 x) {
  const auto fours = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const auto twos = _mm_max_ps(fours, _mm_movehl_ps(fours, fours));
  return _mm_cvtss_f32(_mm_max_ss(twos, _mm_movehdup_ps(twos)));
}

}  // namespace
}  // namespace deepinfer::kernels

#endif
