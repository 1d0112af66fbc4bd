/// Root mean square norm of rows.
///   y = weight * (x / sqrt(mean(x^2) + eps))
/// Shapes: x [rows, dim] with row stride x_stride, y [rows, dim] with y_stride, weight [dim] f32. y
/// may be x. Precision: f32 throughout, the mean as sum_in_eights does, one rounding to bf16 at the
/// end if `bf16`; every twin has the same bits. An all-zero row gives zeros even for eps 1e-20.
/// Source: model-v41.md 6, 4.4 point 7.
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct rms_norm_args {
  static constexpr const char* op_name = "rms_norm";
  const float* x = nullptr;
  const float* weight = nullptr;
  float* y = nullptr;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  std::int64_t x_stride = 0;  ///< 0: dim
  std::int64_t y_stride = 0;  ///< 0: dim
  float eps = 0;
  bool bf16 = false;
};

void rms_norm_ref(const stream_ref&, const rms_norm_args&);
void rms_norm_avx2(const stream_ref&, const rms_norm_args&);

}  // namespace deepinfer::kernels
