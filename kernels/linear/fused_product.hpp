/// A product whose every multiply-add is rounded once, for f32 weights and few outputs.
///
///   y[r][first..] = one panel (16 outputs) of `weight` times x[r], for r in [0, rows)
/// Order per output and row: a partial sum for each run of 128 inputs, in input order, by fused
/// multiply-adds; partial sums added in order. The bits depend neither on the other rows nor on the
/// machine: one without the instruction uses the C library's. For products whose last bit later
/// decides a rounding to bf16, see hyper_connection.hpp. Not a contract.
#pragma once

#include <cstdint>

#include "kernels/linear/packed_matrix.hpp"

namespace deepinfer::kernels {

struct fused_product_args {
  const packed_matrix* weight = nullptr;  ///< f32
  const float* x = nullptr;               ///< [rows, in]
  float* y = nullptr;                     ///< [rows, out]
  std::int64_t rows = 0;
};
void fused_product(const fused_product_args&, std::int64_t panel);

}  // namespace deepinfer::kernels
