/// What lies between two sublayers of a block, as one op: each step is an op of its own header,
/// done for one token after the other while its numbers are in cache. A null pointer leaves a step
/// out.
///
///   combine      the experts' outputs and the shared expert's into one row
///   post         that row into the residual streams (of the sublayer that ends here)
///   tap          the mean of the streams, for a drafter
///   mix          the coefficients of the sublayer that begins here
///   collapse     the streams into its input
///   norm         of that input
///   quantise     of the normed input into another buffer
///   to_int8      of the normed input into codes and scales
///   gate, route  the router's logits and choices for the normed input
/// Steps run in this order and read what earlier ones wrote through their own pointers. Every
/// step's count of tokens or rows is `tokens`. Results have the bits of the single ops of the same
/// instruction set. Cost: one parallel region, two with fewer tokens than threads if mix has its
/// scratch `partial` (then threads share its matrix and the gate's).
/// Source: model-v41.md 5 step 3, 6, 9; performance.md 8.
#pragma once

#include <cstdint>

#include "kernels/common/quantise.hpp"
#include "kernels/linear/int8_rows.hpp"
#include "kernels/linear/linear.hpp"
#include "kernels/mix/hyper_connection.hpp"
#include "kernels/moe/expert_ffn.hpp"
#include "kernels/moe/route.hpp"
#include "kernels/norm/rms_norm.hpp"

namespace deepinfer::kernels {

struct sublayer_args {
  static constexpr const char* op_name = "sublayer";
  std::int64_t tokens = 0;
  const combine_args* combine = nullptr;
  const hyper_post_args* post = nullptr;
  const stream_mean_args* tap = nullptr;
  const hyper_mix_args* mix = nullptr;
  const collapse_args* collapse = nullptr;
  const rms_norm_args* norm = nullptr;
  const quantise_args* quantise = nullptr;
  const to_int8_args* to_int8 = nullptr;
  const linear_args* gate = nullptr;
  const route_args* route = nullptr;

  work_cost cost() const;
};
void sublayer_ref(const stream_ref&, const sublayer_args&);
void sublayer_avx2(const stream_ref&, const sublayer_args&);
/// Aborts where a step's count of tokens is not `tokens`.
void check_sublayer(const sublayer_args&);

}  // namespace deepinfer::kernels
