/// Chooses experts, and groups tokens by expert.
///
/// route: g = logits / temperature, score = sqrt(softplus(g)), softplus(x) = max(x, 0) +
/// log1p(exp(-|x|)). The k experts with the largest score + bias are chosen (ties: the lower id);
/// weights are the unbiased scores, divided by (their sum + 1e-20) if `normalise` and k > 1, then
/// times `scale`. Written in ascending order of the expert id. Padding tokens get id -1 and weight
/// 0. k <= max_experts_per_token.
/// group_by_expert: a counting sort of all (token, choice) pairs: pairs of expert e are
/// order[offset[e] .. offset[e + 1]), ascending; a pair is token * k + choice. Pairs with id -1 are
/// left out.
/// Precision: f32; every twin has the same bits. A NaN score is chosen only where fewer than k
/// others came before it, and then keeps later experts out. Source: model-v41.md 9, 22 points 12
/// and 26.
#pragma once

#include <cstdint>

#include "kernels/common/batch.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

inline constexpr std::int32_t max_experts_per_token = 64;

struct route_args {
  static constexpr const char* op_name = "route";
  batch_view batch;
  const float* logits = nullptr;  ///< [tokens, experts]
  const float* bias = nullptr;    ///< [experts]
  std::int32_t experts = 0;
  std::int32_t k = 0;
  float temperature = 1;
  float scale = 1;
  bool normalise = true;
  std::int32_t* id = nullptr;  ///< [tokens, k]
  float* weight = nullptr;     ///< [tokens, k]
};
void route_ref(const stream_ref&, const route_args&);
void route_avx2(const stream_ref&, const route_args&);
/// Abort on more choices than the limit, or than experts.
void check_choices(std::int32_t k);
void check_route(const route_args&);

struct group_by_expert_args {
  static constexpr const char* op_name = "group_by_expert";
  const std::int32_t* id = nullptr;  ///< [tokens, k]
  std::int64_t tokens = 0;
  std::int32_t k = 0;
  std::int32_t experts = 0;
  std::int32_t* offset = nullptr;  ///< [experts + 1]
  std::int32_t* order = nullptr;   ///< [tokens * k]
};
void group_by_expert_ref(const stream_ref&, const group_by_expert_args&);

}  // namespace deepinfer::kernels
