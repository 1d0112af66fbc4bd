/// Feed-forward experts on grouped tokens, and their sum.
///
/// swiglu: a = silu(gate) * up [* weight]; if limit > 0: up clamps to [-limit, limit], gate to at
/// most limit, both before silu. `bf16`: gate and up round to bf16 first, a rounds last.
/// expert_ffn: for each pair (token, choice) of expert e: y[pair] = w2_e a, a = swiglu(w1_e x, w3_e
/// x) times the routing weight. Pairs come grouped by expert, so each expert's weights are read
/// once per call. The shared expert, if given, takes every token with weight 1 into shared_y.
/// Released: `quantise_hidden` rounds a with q8 before w2; the caller quantises x.
/// Fast (w1, w3, w2 of type i8 or i4): the input is x8 and a becomes int8 rows (hidden8) for w2.
/// combine: y[t] = sum over choices in ascending expert id of pair_y, shared[t] added last; pairs
/// whose id is -1 are skipped. f32 sums, one rounding to bf16 if `bf16`.
/// Shapes: x [tokens, dim]; hidden (scratch) [tokens * k, 2, inter]; pair_y [tokens * k, dim],
/// written only for routed pairs. All experts of a call, the shared one included, have one shape;
/// w1 and w3 of an expert have one type. Source: model-v41.md 9, 4.4 points 23 and 24.
#pragma once

#include <cstdint>

#include "kernels/linear/int8_rows.hpp"
#include "kernels/linear/packed_matrix.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct swiglu_args {
  static constexpr const char* op_name = "swiglu";
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
void swiglu_avx2(const stream_ref&, const swiglu_args&);

struct expert_weights {
  packed_matrix w1;  ///< gate [inter, dim]
  packed_matrix w3;  ///< up [inter, dim]
  packed_matrix w2;  ///< down [dim, inter]
};

struct expert_ffn_args {
  static constexpr const char* op_name = "expert_ffn";
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

  const expert_weights* shared = nullptr;  ///< null: none
  std::int64_t tokens = 0;                 ///< of the shared expert
  float* shared_hidden = nullptr;          ///< scratch [tokens, 2, inter]
  float* shared_y = nullptr;               ///< [tokens, dim]

  int8_rows x8;                     ///< [tokens, padded(dim)] of fast experts
  std::int8_t* hidden8 = nullptr;   ///< scratch [tokens * (k + 1), padded(inter)], fast only
  float* hidden8_scales = nullptr;  ///< scratch [tokens * (k + 1), padded(inter) / 32], fast only

  work_cost cost() const;
};
void expert_ffn_ref(const stream_ref&, const expert_ffn_args&);
void expert_ffn_avx2(const stream_ref&, const expert_ffn_args&);

struct combine_args {
  static constexpr const char* op_name = "combine";
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
void combine_avx2(const stream_ref&, const combine_args&);

}  // namespace deepinfer::kernels
