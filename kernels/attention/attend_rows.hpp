/// Attention with the rotations around it, in one parallel region: rope of the queries, attention,
/// inverse rope of its output, and the output as int8.
///
/// Equal, bit for bit, to rope (in place in q), sparse_attention or block_attention, rope with
/// `inverse` (in place in o) and to_int8 called one after the other.
/// Shapes: either `sparse` or `block` is used, chosen by which has an output; angles [tokens,
/// rotary / 2, 2] of its tokens, or sequences * K; codes [tokens, heads * dim] and scales [tokens,
/// heads * dim / 32] or both null. With codes dim must be a multiple of 32, so that a head's groups
/// are its own.
/// Precision and edge cases: those of the ops. Source: model-v41.md 8.1, 8.7, 8.8.
#pragma once

#include "kernels/attention/rope.hpp"
#include "kernels/attention/sparse_attention.hpp"
#include "kernels/linear/int8_rows.hpp"

namespace deepinfer::kernels {

struct attend_rows_args {
  static constexpr const char* op_name = "attend_rows";
  sparse_attention_args sparse;
  block_attention_args block;
  float* q = nullptr;             ///< the queries that `sparse` or `block` reads
  const float* angles = nullptr;  ///< null: nothing is rotated
  std::int32_t rotary = 0;
  std::int8_t* codes = nullptr;
  float* scales = nullptr;

  work_cost cost() const;
};
void attend_rows_ref(const stream_ref&, const attend_rows_args&);
void attend_rows_avx2(const stream_ref&, const attend_rows_args&);
void check_attend_rows(const attend_rows_args&);

}  // namespace deepinfer::kernels
