/// Feed-forward experts on grouped tokens, and their sum.
///
/// swiglu: a = silu(gate) * up [* weight]; if limit > 0: up clamps to [-limit, limit], gate to at
/// most limit, both before silu. `bf16`: gate and up round to bf16 first, a rounds last.
/// expert_ffn: for each pair (token, choice) of expert e: y[pair] = w2_e a, a = swiglu(w1_e x, w3_e
/// x) times the routing weight. Pairs come grouped by expert, so each expert's weights are read
/// once per call.
/// Released: `quantise_hidden` rounds a with q8 before w2; the caller quantises x.
/// combine: y[t] = sum over choices in ascending expert id of pair_y, shared[t] added last; pairs
/// whose id is -1 are skipped. f32 sums, one rounding to bf16 if `bf16`.
/// Shapes: x [tokens, dim]; hidden (scratch) [tokens * k, 2, inter]; pair_y [tokens * k, dim],
/// written only for routed pairs. Source: model-v41.md 9, 4.4 points 23 and 24.
#pragma once

#include <cstdint>

#include "kernels/linear/packed_matrix.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct swiglu_args {
  const float* gate = nullptr;    ///< [rows, inter] with in_stride
  const float* up = nullptr;      ///< [rows, inter] with in_stride
  const float* weight = nullptr;  ///< [rows] or null: 1
  float* y = nullptr;             ///< [rows, inter] with y_stride; may be gate or up
  std::int64_t rows = 0;
  std::int64_t inter = 0;
  std::int64_t in_stride = 0;  ///< 0: inter
  std::int64_t y_stride = 0;   ///< 0: inter
  float limit = 0;             ///< 0: no clamp
  bool bf16 = false;
};
void swiglu_ref(const stream_ref&, const swiglu_args&);

struct expert_weights {
  packed_matrix w1;  ///< gate [inter, dim]
  packed_matrix w3;  ///< up [inter, dim]
  packed_matrix w2;  ///< down [dim, inter]
};

struct expert_ffn_args {
  const expert_weights* experts = nullptr;  ///< [expert_count]
  std::int32_t expert_count = 0;
  const float* x = nullptr;  ///< [tokens, dim], quantised already in released mode
  std::int64_t dim = 0;
  std::int64_t inter = 0;
  std::int32_t k = 0;
  const std::int32_t* offset = nullptr;  ///< [expert_count + 1], of group_by_expert
  const std::int32_t* order = nullptr;   ///< [offset[expert_count]]
  const float* weight = nullptr;         ///< [tokens * k]
  float* hidden = nullptr;               ///< scratch [tokens * k, 2, inter]
  float* pair_y = nullptr;               ///< [tokens * k, dim]
  float limit = 0;
  bool bf16 = false;
  bool quantise_hidden = false;
};
void expert_ffn_ref(const stream_ref&, const expert_ffn_args&);

struct combine_args {
  const std::int32_t* id = nullptr;  ///< [tokens, k], ascending per token
  const float* pair_y = nullptr;     ///< [tokens * k, dim]
  const float* shared = nullptr;     ///< [tokens, dim] or null
  float* y = nullptr;                ///< [tokens, dim], may be shared
  std::int64_t tokens = 0;
  std::int32_t k = 0;
  std::int64_t dim = 0;
  bool bf16 = false;
};
void combine_ref(const stream_ref&, const combine_args&);

}  // namespace deepinfer::kernels
