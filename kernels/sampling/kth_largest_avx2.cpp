#include <immintrin.h>

#include "kernels/sampling/row_steps.hpp"

namespace deepinfer::kernels {

namespace {

/// How many of x[0, count) are at or above each of three thresholds.
struct counts {
  std::int32_t at[3];
};

std::int32_t sum_lanes(__m256i v) {
  const auto half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const auto pair = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32(pair, 0xb1)));
}

counts count_at_least(const float* x, std::int32_t count, const float* thresholds) {
  const auto low = _mm256_set1_ps(thresholds[0]);
  const auto middle = _mm256_set1_ps(thresholds[1]);
  const auto high = _mm256_set1_ps(thresholds[2]);
  auto low_sum = _mm256_setzero_si256(), middle_sum = low_sum, high_sum = low_sum;
  // A true comparison is -1 in its lane.
  const auto add = [](__m256i sum, __m256 v, __m256 least) {
    return _mm256_sub_epi32(sum, _mm256_castps_si256(_mm256_cmp_ps(v, least, _CMP_GE_OQ)));
  };
  std::int32_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const auto v = _mm256_loadu_ps(x + i);
    low_sum = add(low_sum, v, low);
    middle_sum = add(middle_sum, v, middle);
    high_sum = add(high_sum, v, high);
  }
  counts out{{sum_lanes(low_sum), sum_lanes(middle_sum), sum_lanes(high_sum)}};
  for (; i < count; ++i)
    for (int t = 0; t < 3; ++t) out.at[t] += x[i] >= thresholds[t] ? 1 : 0;
  return out;
}

// Floats in their order as whole numbers, and back.
std::int64_t order_of(float x) {
  const auto bits = __builtin_bit_cast(std::int32_t, x);
  return bits ^ (bits >> 31 & 0x7fffffff);
}
float float_of(std::int64_t order) {
  const auto bits = static_cast<std::int32_t>(order);
  return __builtin_bit_cast(float, bits ^ (bits >> 31 & 0x7fffffff));
}

}  // namespace

// Quarters the range of values: 16 passes at most.
float kth_largest_avx2(const float* x, std::int32_t count, std::int32_t k) {
  // At least k are at or above `low`, fewer than k at or above `high`.
  auto low = order_of(-__FLT_MAX__);
  auto high = order_of(__builtin_inff());
  if (const float least = float_of(low), all[] = {least, least, least};
      count_at_least(x, count, all).at[0] < k)
    return -__builtin_inff();
  while (high - low > 1) {
    const auto range = high - low;
    const std::int64_t cut[] = {low + (range + 3) / 4, low + (range + 1) / 2,
                                low + (3 * range + 3) / 4};
    const float thresholds[] = {float_of(cut[0]), float_of(cut[1]), float_of(cut[2])};
    const auto found = count_at_least(x, count, thresholds);
    for (int t = 2; t >= 0; --t) {
      if (found.at[t] >= k) {
        if (cut[t] > low) low = cut[t];
        break;
      }
      high = cut[t] < high ? cut[t] : high;
    }
  }
  return float_of(low);
}

}  // namespace deepinfer::kernels
