#include "kernels/moe/route.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.hpp"

namespace deepinfer::kernels {
namespace {

float expert_score(float logit) {
  const float softplus = std::max(logit, 0.0F) + std::log1p(std::exp(-std::fabs(logit)));
  return std::sqrt(softplus);
}

/// Keeps the best k experts, best first; a tie keeps the one seen first, which has the lower id.
void choose_experts(const route_args& a, const float* logits, std::int32_t* id, float* weight) {
  float rank[max_experts_per_token];
  std::int32_t held = 0;
  for (std::int32_t expert = 0; expert < a.experts; ++expert) {
    const float score = expert_score(logits[expert] / a.temperature);
    const float biased = score + a.bias[expert];
    if (held == a.k && !(biased > rank[held - 1])) continue;
    auto at = held < a.k ? held++ : held - 1;
    for (; at > 0 && biased > rank[at - 1]; --at) {
      rank[at] = rank[at - 1];
      id[at] = id[at - 1];
      weight[at] = weight[at - 1];
    }
    rank[at] = biased;
    id[at] = expert;
    weight[at] = score;
  }
}

void sort_by_id(std::int32_t k, std::int32_t* id, float* weight) {
  for (std::int32_t i = 1; i < k; ++i)
    for (auto at = i; at > 0 && id[at] < id[at - 1]; --at) {
      std::swap(id[at], id[at - 1]);
      std::swap(weight[at], weight[at - 1]);
    }
}

}  // namespace

void check_choices(std::int32_t k) {
  DI_CHECK(k <= max_experts_per_token, "{} experts per token, at most {}", k,
           max_experts_per_token);
}

void check_route(const route_args& a) {
  check_choices(a.k);
  DI_CHECK(a.k <= a.experts, "{} of {} experts", a.k, a.experts);
}

void route_ref(const stream_ref& stream, const route_args& a) {
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

void group_by_expert_ref(const stream_ref&, const group_by_expert_args& a) {
  std::int32_t* offset = a.offset;
  std::fill(offset, offset + a.experts + 1, 0);
  const auto pairs = a.tokens * a.k;
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    DI_CHECK(a.id[pair] < a.experts, "expert {} of {}", a.id[pair], a.experts);
    if (a.id[pair] >= 0) ++offset[a.id[pair] + 1];
  }
  for (std::int32_t expert = 0; expert < a.experts; ++expert) offset[expert + 1] += offset[expert];
  // offset[e] walks through its group while the pairs are placed, and ends where the next begins.
  for (std::int64_t pair = 0; pair < pairs; ++pair)
    if (a.id[pair] >= 0) a.order[offset[a.id[pair]]++] = static_cast<std::int32_t>(pair);
  for (std::int32_t expert = a.experts; expert > 0; --expert) offset[expert] = offset[expert - 1];
  offset[0] = 0;
}

}  // namespace deepinfer::kernels
