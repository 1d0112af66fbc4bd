#include <algorithm>
#include <cmath>

#include "kernels/common/vector_avx2.hpp"
#include "kernels/moe/route.hpp"

namespace deepinfer::kernels {
namespace {

float expert_score(float logit) {
  const float softplus = std::max(logit, 0.0F) + log1pf(expf(-std::fabs(logit)));
  return std::sqrt(softplus);
}

/// exp(x) for x <= 0, relative error below 1e-6; below -87 its value at -87. NaN stays NaN.
__m256 rough_exp(__m256 x) {
  x = _mm256_max_ps(_mm256_set1_ps(-87.0F), x);
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504F)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // ln 2 in two parts: r is exact to f32.
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
  __m256 sum = _mm256_set1_ps(1.0F / 720);
  for (const float term : {1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F})
    sum = _mm256_fmadd_ps(sum, r, _mm256_set1_ps(term));
  const __m256i power =
    _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(sum, _mm256_castsi256_ps(power));
}

/// log(1 + u) for u in [0, 1]: twice the artanh of u / (2 + u).
__m256 rough_log1p(__m256 u) {
  const __m256 s = _mm256_div_ps(u, _mm256_add_ps(u, _mm256_set1_ps(2.0F)));
  const __m256 square = _mm256_mul_ps(s, s);
  __m256 sum = _mm256_set1_ps(1.0F / 13);
  for (const float term : {1.0F / 11, 1.0F / 9, 1.0F / 7, 1.0F / 5, 1.0F / 3, 1.0F})
    sum = _mm256_fmadd_ps(sum, square, _mm256_set1_ps(term));
  return _mm256_mul_ps(_mm256_add_ps(s, s), sum);
}

/// expert_score within 1e-5 of itself, relative.
__m256 rough_score(__m256 logit) {
  const __m256 tail = rough_log1p(rough_exp(_mm256_sub_ps(_mm256_setzero_ps(), magnitude(logit))));
  return _mm256_sqrt_ps(_mm256_add_ps(_mm256_max_ps(logit, _mm256_setzero_ps()), tail));
}

/// The best experts so far, best first; a tie keeps the one seen first, which has the lower id.
struct chosen_experts {
  chosen_experts(std::int32_t count, std::int32_t* ids, float* weights)
    : k(count),
      id(ids),
      weight(weights) {}

  std::int32_t k;
  std::int32_t* id;
  float* weight;
  std::int32_t held = 0;
  float rank[max_experts_per_token];

  void offer(std::int32_t expert, float score, float biased) {
    if (held == k && !(biased > rank[held - 1])) return;
    auto at = held < k ? held++ : held - 1;
    for (; at > 0 && biased > rank[at - 1]; --at) {
      rank[at] = rank[at - 1];
      id[at] = id[at - 1];
      weight[at] = weight[at - 1];
    }
    rank[at] = biased;
    id[at] = expert;
    weight[at] = score;
  }

  /// No expert below this can enter, even if its rough score is off. NaN: all can.
  float border() const {
    return held < k ? -INFINITY : rank[held - 1] - 1e-4F * (1.0F + std::fabs(rank[held - 1]));
  }
};

/// Rough scores leave out most experts; the rest are scored and chosen exactly as defined.
void choose_experts(const route_args& a, const float* logits, std::int32_t* id, float* weight) {
  chosen_experts chosen(a.k, id, weight);
  const __m256 inverse = _mm256_set1_ps(1.0F / a.temperature);
  for_vectors(0, a.experts, [&](std::int64_t first, auto lanes) {
    const __m256 scaled = _mm256_mul_ps(lanes.load(logits + first), inverse);
    const __m256 bias = lanes.load(a.bias + first);
    const __m256 rough = _mm256_add_ps(rough_score(scaled), bias);
    // The error grows with the score, which may be larger than its sum with the bias.
    const __m256 slack = _mm256_mul_ps(magnitude(bias), _mm256_set1_ps(1e-4F));
    const __m256 is_below =
      _mm256_cmp_ps(_mm256_add_ps(rough, slack), _mm256_set1_ps(chosen.border()), _CMP_LT_OQ);
    const auto count = std::min<std::int64_t>(vector_width, a.experts - first);
    auto may_enter = ~static_cast<unsigned>(_mm256_movemask_ps(is_below)) & ((1u << count) - 1u);
    for (; may_enter != 0; may_enter &= may_enter - 1) {
      const auto expert = static_cast<std::int32_t>(first) + __builtin_ctz(may_enter);
      const float score = expert_score(logits[expert] / a.temperature);
      chosen.offer(expert, score, score + a.bias[expert]);
    }
  });
}

void sort_by_id(std::int32_t k, std::int32_t* id, float* weight) {
  for (std::int32_t i = 1; i < k; ++i)
    for (auto at = i; at > 0 && id[at] < id[at - 1]; --at) {
      std::swap(id[at], id[at - 1]);
      std::swap(weight[at], weight[at - 1]);
    }
}

}  // namespace

void route_avx2(const stream_ref& stream, const route_args& a) {
  check_route(a);
  stream.for_ranges(a.batch.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      std::int32_t* id = a.id + token * a.k;
      float* weight = a.weight + token * a.k;
      if (a.batch.is_padding(token)) {
        std::fill(id, id + a.k, -1);
        std::fill(weight, weight + a.k, 0.0F);
        continue;
      }
      choose_experts(a, a.logits + token * a.experts, id, weight);
      float sum = 0;
      for (std::int32_t i = 0; i < a.k; ++i) sum += weight[i];
      const bool divides = a.normalise && a.k > 1;
      for (std::int32_t i = 0; i < a.k; ++i)
        weight[i] = (divides ? weight[i] / (sum + 1e-20F) : weight[i]) * a.scale;
      sort_by_id(a.k, id, weight);
    }
  });
}

}  // namespace deepinfer::kernels
