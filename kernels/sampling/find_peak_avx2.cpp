#include <immintrin.h>

#include "kernels/sampling/row_steps.hpp"

namespace deepinfer::kernels {

namespace {

constexpr float no_logit = -__builtin_inff();

float largest(__m256 v) {
  auto half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}

/// The largest of a group; lanes of `bad` become non-zero where x is NaN or +inf.
float scan_group(const float* x, __m256& bad) {
  const auto limit = _mm256_set1_ps(__FLT_MAX__);
  const auto a = _mm256_loadu_ps(x), b = _mm256_loadu_ps(x + 8);
  const auto c = _mm256_loadu_ps(x + 16), d = _mm256_loadu_ps(x + 24);
  const auto ab =
    _mm256_or_ps(_mm256_cmp_ps(a, limit, _CMP_NLE_UQ), _mm256_cmp_ps(b, limit, _CMP_NLE_UQ));
  const auto cd =
    _mm256_or_ps(_mm256_cmp_ps(c, limit, _CMP_NLE_UQ), _mm256_cmp_ps(d, limit, _CMP_NLE_UQ));
  bad = _mm256_or_ps(bad, _mm256_or_ps(ab, cd));
  return largest(_mm256_max_ps(_mm256_max_ps(a, b), _mm256_max_ps(c, d)));
}

}  // namespace

peak find_peak_avx2(const float* x, std::int32_t vocab, float* maxima) {
  peak best;
  auto bad = _mm256_setzero_ps();
  std::int32_t group = 0;
  std::int32_t best_group = 0;
  const auto note = [&](float most) {
    maxima[group] = most;
    if (most > best.x) {
      best.x = most;
      best_group = group;
    }
    ++group;
  };
  for (; (group + 1) * group_ids <= vocab;) note(scan_group(x + group * group_ids, bad));
  if (group * group_ids < vocab) {
    float tail[group_ids];
    for (std::int32_t i = 0; i < group_ids; ++i)
      tail[i] = group * group_ids + i < vocab ? x[group * group_ids + i] : no_logit;
    note(scan_group(tail, bad));
  }
  best.is_bad = _mm256_movemask_ps(bad) != 0;
  if (best.is_bad || !(best.x > no_logit)) return best;
  best.id = best_group * group_ids;
  while (x[best.id] != best.x) ++best.id;
  best.x = x[best.id];  // of +0 and -0, the sign of the first
  return best;
}

}  // namespace deepinfer::kernels
