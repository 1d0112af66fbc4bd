#include <immintrin.h>

#include "kernels/sampling/row_steps.hpp"

namespace deepinfer::kernels {

namespace {

/// exp(x) for x in [-700, 0], within 2e-14.
__m256d exp_of(__m256d x) {
  const auto round = _mm256_set1_pd(0x1.8p52);
  const auto shifted = _mm256_fmadd_pd(x, _mm256_set1_pd(0x1.71547652b82fep0), round);
  const auto n = _mm256_sub_pd(shifted, round);
  auto r = _mm256_fnmadd_pd(n, _mm256_set1_pd(0x1.62e42fefa39efp-1), x);
  r = _mm256_fnmadd_pd(n, _mm256_set1_pd(0x1.abc9e3b39803fp-56), r);  // ln 2 beyond its double
  const double inverse_factorial[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                                      1.0 / 5040,     1.0 / 720,     1.0 / 120,    1.0 / 24,
                                      1.0 / 6,        0.5,           1.0,          1.0};
  auto p = _mm256_set1_pd(inverse_factorial[0]);
  for (int k = 1; k < 12; ++k) p = _mm256_fmadd_pd(p, r, _mm256_set1_pd(inverse_factorial[k]));
  const auto exponent = _mm256_slli_epi64(_mm256_castpd_si256(shifted), 52);
  return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p), exponent));
}

double sum_lanes(__m256d v) {
  const auto half = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
}

/// The logits of a group; `tail` is filled up with -inf for the last one.
const float* group_logits(const row_view& row, std::int32_t group, float* tail) {
  const auto first = group * group_ids;
  if (row.vocab - first >= group_ids) return row.x + first;
  for (std::int32_t i = 0; i < group_ids; ++i)
    tail[i] = first + i < row.vocab ? row.x[first + i] : -__builtin_inff();
  return tail;
}

std::uint32_t compare_group(const float* x, float bound, bool is_equal_wanted) {
  const auto limit = _mm256_set1_ps(bound);
  std::uint32_t bits = 0;
  for (int v = 0; v < 4; ++v) {
    const auto logits = _mm256_loadu_ps(x + 8 * v);
    const auto found = is_equal_wanted ? _mm256_cmp_ps(logits, limit, _CMP_EQ_OQ)
                                       : _mm256_cmp_ps(logits, limit, _CMP_GT_OQ);
    bits |= static_cast<std::uint32_t>(_mm256_movemask_ps(found)) << (8 * v);
  }
  return bits;
}

}  // namespace

double sum_exp_avx2(const row_view& row) {
  // All ids below it together add less than 2^23 * e^-70 = 4e-24 to a sum of at least 1.
  const float least = row.top.x - 70.0f;
  const auto top = _mm256_set1_pd(static_cast<double>(row.top.x));
  const auto floor = _mm256_set1_pd(-700.0);
  auto sum = _mm256_setzero_pd();
  float tail[group_ids];
  const auto groups = group_count(row.vocab);
  for (std::int32_t group = 0; group < groups; ++group) {
    if (row.maxima[group] < least) continue;
    const auto* x = group_logits(row, group, tail);
    auto part = _mm256_setzero_pd();
    for (int v = 0; v < 8; ++v) {
      const auto logits = _mm256_cvtps_pd(_mm_loadu_ps(x + 4 * v));
      part = _mm256_add_pd(part, exp_of(_mm256_max_pd(_mm256_sub_pd(logits, top), floor)));
    }
    sum = _mm256_add_pd(sum, part);
  }
  return sum_lanes(sum);
}

// At least `count` groups reach the count-th largest of the maxima, so the ids wanted are all above
// it, fewer than 32 * count of them, or equal to it.
std::int32_t list_best_avx2(const row_view& row, std::int32_t count, std::int32_t* ids) {
  const auto groups = group_count(row.vocab);
  const float bound =
    count <= groups ? kth_largest_avx2(row.maxima, groups, count) : -__builtin_inff();
  std::int32_t size = 0;
  float tail[group_ids];
  for (const bool is_equal_wanted : {false, true}) {
    if (is_equal_wanted && !(bound > -__builtin_inff())) break;
    for (std::int32_t group = 0; group < groups; ++group) {
      if (row.maxima[group] < bound) continue;
      if (is_equal_wanted && size >= count) break;
      auto bits = compare_group(group_logits(row, group, tail), bound, is_equal_wanted);
      for (; bits != 0; bits &= bits - 1) ids[size++] = group * group_ids + __builtin_ctz(bits);
    }
  }
  return size;
}

}  // namespace deepinfer::kernels
