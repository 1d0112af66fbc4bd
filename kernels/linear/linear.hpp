/// Products with packed weights.
///   y[r][o] = sum_i W[o][i] * x[r][i]           (+ y[r][o] if `accumulate`)
/// Shapes: x [rows, in] with stride, y [rows, out] with stride; must not alias. Quantising the
/// input (released FP8 and FP4 linears) is the caller's step before: quantise with format q8, once
/// per input.
/// Weights of type i8 and i4 read the input as int8 (`x8`, see int8_rows.hpp), all others as f32
/// (`x`).
/// Precision: f32 sums in the orders of panel_product.hpp and packed_int8.hpp; then one rounding to
/// bf16 if `bf16`. A row's bits depend on that row and W only.
/// Cost: each weight is read from memory once per call and 64 rows.
/// Source: model-v41.md 4.4 points 3, 19, 25, 27; 20.
#pragma once

#include <cstdint>

#include "kernels/linear/int8_rows.hpp"
#include "kernels/linear/packed_matrix.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct linear_args {
  static constexpr const char* op_name = "linear";
  const packed_matrix* weight = nullptr;
  const float* x = nullptr;
  float* y = nullptr;
  std::int64_t rows = 0;
  std::int64_t x_stride = 0;  ///< 0: weight->in
  std::int64_t y_stride = 0;  ///< 0: weight->out
  bool accumulate = false;    ///< adds to what y holds (Markov correction)
  bool bf16 = false;
  int8_rows x8;  ///< read instead of x where the weights are i8 or i4; rows contiguous

  work_cost cost() const;
};
void linear_ref(const stream_ref&, const linear_args&);
void linear_avx2(const stream_ref&, const linear_args&);

/// Products that do not depend on one another, together: the AVX2 twin takes one parallel region
/// for all their panels.
struct linears_args {
  static constexpr const char* op_name = "linears";
  const linear_args* products = nullptr;  ///< [count]; outputs must not overlap
  std::int32_t count = 0;

  work_cost cost() const;
};
void linears_ref(const stream_ref&, const linears_args&);
void linears_avx2(const stream_ref&, const linears_args&);

/// A block-diagonal product: group g maps x[r][g * in ..] to y[r][g * out ..] with its own matrix;
/// all matrices have the same shape. x [rows, groups * in], y [rows, groups * out] (wo_a).
struct grouped_linear_args {
  static constexpr const char* op_name = "grouped_linear";
  const packed_matrix* weights = nullptr;  ///< [groups]
  std::int64_t groups = 0;
  const float* x = nullptr;
  float* y = nullptr;
  std::int64_t rows = 0;
  bool bf16 = false;
  int8_rows x8;  ///< [rows, groups * padded(in)]: each group's part padded on its own

  work_cost cost() const;
};
void grouped_linear_ref(const stream_ref&, const grouped_linear_args&);
void grouped_linear_avx2(const stream_ref&, const grouped_linear_args&);

}  // namespace deepinfer::kernels
