/// A range of panels of one matrix against any rows: the inner work of every AVX2 product. Runs on
/// the calling thread.
///
///   y[r][o] = sum_i W[o][i] * x[r][i]   for the outputs o of panels [begin, end), r in [0, rows)
/// Rows are given one by one, so that experts gather without copying; y[r] points to output 0 of
/// the whole matrix. Outputs past W.out are not written. Rounding, adding to y and the like are the
/// caller's, on the freshly written values.
/// Order: as panel_product.hpp says for the type; a row's bits do not depend on the other rows, the
/// range of panels or the number of rows.
/// Not a contract: the AVX2 twins of linear, linears, grouped_linear and expert_ffn include it.
#pragma once

#include "kernels/linear/packed_matrix.hpp"

namespace deepinfer::kernels {

/// f32, bf16 and e2m1 weights. rows <= matrix_rows_most.
void matrix_rows_avx2(const packed_matrix& matrix, std::int64_t begin, std::int64_t end,
                      const float* const* x, float* const* y, std::int64_t rows);

/// i8 and i4 weights: codes[r] and scales[r] of row r (int8_rows.hpp).
void int8_matrix_rows_avx2(const packed_matrix& matrix, std::int64_t begin, std::int64_t end,
                           const std::int8_t* const* codes, const float* const* scales,
                           float* const* y, std::int64_t rows);
/// The same by definition, one panel and row at a time.
void int8_matrix_rows_ref(const packed_matrix& matrix, std::int64_t begin, std::int64_t end,
                          const std::int8_t* const* codes, const float* const* scales,
                          float* const* y, std::int64_t rows);

/// Callers with more rows go through them in blocks of this many.
inline constexpr std::int64_t matrix_rows_most = 64;

}  // namespace deepinfer::kernels
