/// What follows the logits of a draft pass, and the greedy choice.
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

/// Raw confidence logit of draft rows: z[r] = sum w[0..dim) * x[r] + sum w[dim..dim + rank) * e[r],
/// f32. x is the collapsed row before the norm, e the Markov embedding of the row's input token.
/// Source: model-v41.md 11.5, 4.4 point 28.
struct confidence_args {
  static constexpr const char* op_name = "confidence";
  const float* weight = nullptr;  ///< [dim + rank]
  const float* x = nullptr;       ///< [rows, dim] with x_stride
  const float* e = nullptr;       ///< [rows, rank] with e_stride
  float* z = nullptr;             ///< [rows] with z_stride
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  std::int64_t rank = 0;
  std::int64_t x_stride = 0;  ///< 0: dim
  std::int64_t e_stride = 0;  ///< 0: rank
  std::int64_t z_stride = 0;  ///< 0: 1
};
void confidence_ref(const stream_ref&, const confidence_args&);
void confidence_avx2(const stream_ref&, const confidence_args&);

/// id[r] = index of the largest of x[r][0..dim); ties: the lowest index; NaN never wins; all NaN:
/// 0.
struct argmax_args {
  static constexpr const char* op_name = "argmax";
  const float* x = nullptr;    ///< [rows, dim] with x_stride
  std::int32_t* id = nullptr;  ///< [rows] with id_stride
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  std::int64_t x_stride = 0;   ///< 0: dim
  std::int64_t id_stride = 0;  ///< 0: 1
};
void argmax_ref(const stream_ref&, const argmax_args&);
void argmax_avx2(const stream_ref&, const argmax_args&);

}  // namespace deepinfer::kernels
