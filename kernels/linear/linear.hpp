/// Products with packed weights.
///   y[r][o] = sum_i W[o][i] * x[r][i]           (+ y[r][o] if `accumulate`)
/// Shapes: x [rows, in] with stride, y [rows, out] with stride; must not alias. Quantising the
/// input (released FP8 and FP4 linears) is the caller's step before: quantise with format q8, once
/// per input.
/// Precision: f32 sums, per output one partial sum per 128 inputs in input order, partial sums
/// added in order; then one rounding to bf16 if `bf16`. A row's bits depend on that row and W only.
/// Cost: each weight is read from memory once per call and 16 rows.
/// Source: model-v41.md 4.4 points 3, 19, 25, 27; 20.
#pragma once

#include <cstdint>

#include "kernels/linear/packed_matrix.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct linear_args {
  const packed_matrix* weight = nullptr;
  const float* x = nullptr;
  float* y = nullptr;
  std::int64_t rows = 0;
  std::int64_t x_stride = 0;  ///< 0: weight->in
  std::int64_t y_stride = 0;  ///< 0: weight->out
  bool accumulate = false;    ///< adds to what y holds (Markov correction)
  bool bf16 = false;
};
void linear_ref(const stream_ref&, const linear_args&);

/// A block-diagonal product: group g maps x[r][g * in ..] to y[r][g * out ..] with its own matrix;
/// all matrices have the same shape. x [rows, groups * in], y [rows, groups * out] (wo_a).
struct grouped_linear_args {
  const packed_matrix* weights = nullptr;  ///< [groups]
  std::int64_t groups = 0;
  const float* x = nullptr;
  float* y = nullptr;
  std::int64_t rows = 0;
  bool bf16 = false;
};
void grouped_linear_ref(const stream_ref&, const grouped_linear_args&);

}  // namespace deepinfer::kernels
