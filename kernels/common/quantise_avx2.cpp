#include <algorithm>
#include <cstring>

#include "kernels/common/quantise.hpp"
#include "kernels/common/vector_avx2.hpp"

namespace deepinfer::kernels {
namespace {

/// Rounds magnitudes to floats of `bits` mantissa bits and smallest normal 2^normal: E4M3 is
/// (3, -6), E2M1 is (1, 0). Ties go to the even code. NaN is the caller's.
template <int bits, int normal>
__m256 round_small(__m256 size) {
  constexpr int dropped = 23 - bits;
  const __m256i word = _mm256_castps_si256(size);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(word, dropped), _mm256_set1_epi32(1));
  const __m256i up =
    _mm256_add_epi32(word, _mm256_add_epi32(odd, _mm256_set1_epi32((1 << (dropped - 1)) - 1)));
  const __m256 large =
    _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(-(1 << dropped))));
  // Below 2^normal steps are 2^(normal - bits): a sum with 2^(23 + that) rounds at that step.
  constexpr float anchor = static_cast<float>(1 << (23 + normal - bits));
  const __m256 small =
    _mm256_sub_ps(_mm256_add_ps(size, _mm256_set1_ps(anchor)), _mm256_set1_ps(anchor));
  constexpr float border = normal < 0 ? 1.0F / (1 << -normal) : static_cast<float>(1 << normal);
  return _mm256_blendv_ps(large, small, _mm256_cmp_ps(size, _mm256_set1_ps(border), _CMP_LT_OQ));
}

__m256 to_e4m3(__m256 value) {
  const __m256 size = _mm256_min_ps(_mm256_set1_ps(448.0F), magnitude(value));
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
  const __m256 rounded =
    _mm256_blendv_ps(round_small<3, -6>(size), nan, _mm256_cmp_ps(size, size, _CMP_UNORD_Q));
  return _mm256_or_ps(rounded, sign_of(value));
}

/// The format has no NaN: it becomes 6, as beyond every border.
__m256 to_e2m1(__m256 value) {
  const __m256 most = _mm256_set1_ps(6.0F);
  const __m256 size = _mm256_min_ps(magnitude(value), most);
  return _mm256_or_ps(round_small<1, 0>(size), sign_of(value));
}

/// As pow2ceil.
float pow2_at_least(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const std::uint32_t exponent = ((bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1u : 0u)) << 23;
  std::memcpy(&value, &exponent, sizeof(value));
  return value;
}

/// A NaN entry counts for nothing in `top`: max_ps gives its second operand then.
float largest_of(__m256 top) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

template <quantiser format>
float scale_for(float amax) {
  if constexpr (format == quantiser::q8)
    return pow2_at_least(std::max(amax, 1e-4F) * (1.0F / 448.0F));
  else if constexpr (format == quantiser::q4_index)
    return pow2_at_least(std::max(amax, 6.0F * 0x1p-126F) * (1.0F / 6.0F));
  else
    return _mm256_cvtss_f32(
      to_e4m3(_mm256_set1_ps(std::min(std::max(amax, 6.0F * 0x1p-9F) / 6.0F, 448.0F))));
}

template <quantiser format>
void quantise_group_of(const float* x, float* y, std::int64_t count) {
  __m256 top = _mm256_setzero_ps();
  for_vectors(0, count, [&](std::int64_t i, auto lanes) {
    top = _mm256_max_ps(magnitude(lanes.load(x + i)), top);
  });
  const float scale = scale_for<format>(largest_of(top));
  const __m256 scales = _mm256_set1_ps(scale);
  // A power of two has an exact inverse.
  const __m256 inverse = _mm256_set1_ps(1.0F / scale);
  for_vectors(0, count, [&](std::int64_t i, auto lanes) {
    const __m256 value = lanes.load(x + i);
    __m256 code;
    if constexpr (format == quantiser::q8)
      code = to_e4m3(_mm256_mul_ps(value, inverse));
    else if constexpr (format == quantiser::q4_index)
      code = to_e2m1(_mm256_mul_ps(value, inverse));
    else
      code = to_e2m1(_mm256_div_ps(value, scales));
    lanes.store(y + i, _mm256_mul_ps(code, scales));
  });
}

template <quantiser format>
void quantise_rows(const stream_ref& stream, const quantise_args& a) {
  constexpr auto group = group_of(format);
  stream.for_ranges(a.rows, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row) {
      const float* x = a.x + row * a.dim;
      float* y = a.y + row * a.dim;
      std::int64_t at = 0;
      for (; at + group <= a.dim; at += group) quantise_group_of<format>(x + at, y + at, group);
      if (at < a.dim) quantise_group_of<format>(x + at, y + at, a.dim - at);
    }
  });
}

}  // namespace

void quantise_avx2(const stream_ref& stream, const quantise_args& a) {
  switch (a.format) {
  case quantiser::none: return quantise_ref(stream, a);
  case quantiser::q8: return quantise_rows<quantiser::q8>(stream, a);
  case quantiser::q4_index: return quantise_rows<quantiser::q4_index>(stream, a);
  case quantiser::q4_memory: return quantise_rows<quantiser::q4_memory>(stream, a);
  }
}

}  // namespace deepinfer::kernels
