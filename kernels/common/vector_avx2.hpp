/// What the AVX2 twins share: eight f32 lanes, ragged ends by mask, rounding to bf16, and the sums
/// of lanes.hpp with the same bits.
///
/// Everything has internal linkage: a copy built for AVX2 must never be picked by another file. So
/// only files named *_avx2.cpp include it. No fused multiply-adds: where the reference rounds
/// twice, so do these. Masked lanes load as 0 and are not stored.
/// Not a contract.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace deepinfer::kernels {
namespace {

inline constexpr std::int64_t vector_width = 8;

inline __m256i first_lanes(std::int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/// How a loop over eight lanes reads and writes: all of them, or the first few.
struct whole_vector {
  __m256 load(const float* from) const { return _mm256_loadu_ps(from); }
  void store(float* to, __m256 value) const { _mm256_storeu_ps(to, value); }
};

struct part_vector {
  __m256i mask;
  __m256 load(const float* from) const { return _mm256_maskload_ps(from, mask); }
  void store(float* to, __m256 value) const { _mm256_maskstore_ps(to, mask, value); }
};

/// body(i, lanes) for i = begin, begin + 8, ..; the last may cover fewer than eight entries.
template <class Body>
inline void for_vectors(std::int64_t begin, std::int64_t end, Body&& body) {
  std::int64_t i = begin;
  for (; i + vector_width <= end; i += vector_width) body(i, whole_vector{});
  if (i < end) body(i, part_vector{first_lanes(end - i)});
}

inline __m256 magnitude(__m256 value) {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), value);
}

inline __m256 sign_of(__m256 value) {
  return _mm256_and_ps(_mm256_set1_ps(-0.0F), value);
}

/// As bf16_round: to nearest even, NaN stays NaN.
inline __m256 round_to_bf16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i low = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(low, _mm256_set1_epi32(0x7fff)));
  const __m256 quiet = _mm256_or_ps(value, _mm256_castsi256_ps(_mm256_set1_epi32(0x400000)));
  const __m256 rounded =
    _mm256_blendv_ps(_mm256_castsi256_ps(up), quiet, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  return _mm256_and_ps(rounded, _mm256_castsi256_ps(_mm256_set1_epi32(-0x10000)));
}

inline __m256 rounded_if(bool bf16, __m256 value) {
  return bf16 ? round_to_bf16(value) : value;
}

/// sum_in_eights; value(i, lanes) gives entries i .. i + 7.
template <class Value>
inline float vector_sum_in_eights(std::int64_t count, Value&& value) {
  __m256 running[4] = {};
  std::int64_t i = 0;
  for (; i + 4 * vector_width <= count; i += 4 * vector_width)
    for (int part = 0; part < 4; ++part)
      running[part] = _mm256_add_ps(running[part], value(i + part * vector_width, whole_vector{}));
  for (; i + vector_width <= count; i += vector_width)
    running[0] = _mm256_add_ps(running[0], value(i, whole_vector{}));
  float sum = 0, lane[vector_width];
  if (i < count) {
    _mm256_storeu_ps(lane, value(i, part_vector{first_lanes(count - i)}));
    for (std::int64_t l = 0; l < count - i; ++l) sum += lane[l];
  }
  for (int part = 1; part < 4; ++part) running[0] = _mm256_add_ps(running[0], running[part]);
  _mm256_storeu_ps(lane, running[0]);
  for (const float it : lane) sum += it;
  return sum;
}

inline float vector_sum_of_squares(const float* x, std::int64_t count) {
  return vector_sum_in_eights(count, [x](std::int64_t i, auto lanes) {
    const __m256 value = lanes.load(x + i);
    return _mm256_mul_ps(value, value);
  });
}

/// dot of lanes.hpp.
inline float vector_dot(const float* a, const float* b, std::int64_t count) {
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  bool is_high = false;
  for_vectors(0, count, [&](std::int64_t i, auto lanes) {
    const __m256 product = _mm256_mul_ps(lanes.load(a + i), lanes.load(b + i));
    if (is_high)
      high = _mm256_add_ps(high, product);
    else
      low = _mm256_add_ps(low, product);
    is_high = !is_high;
  });
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace
}  // namespace deepinfer::kernels
