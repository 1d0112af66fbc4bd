/// Sums of eight floats at a time for the AVX2 twins of attention, beside vector_avx2.hpp.
///
/// Every lane's result depends on that lane only, so a value has the same bits wherever it stands
/// in a row and however long the row is. lane_sums adds in the order of lane_sum (lanes.hpp) once
/// lanes i and i + 8 are added.
/// Not a contract: everything has internal linkage, for files compiled for AVX2 and FMA only.
#pragma once

#if defined(__AVX2__) && defined(__FMA__)

#include "kernels/common/exp_avx2.hpp"
#include "kernels/common/vector_avx2.hpp"

namespace deepinfer::kernels {
namespace {

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
