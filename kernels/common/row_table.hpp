/// A table of rows looked up by id, kept as stored in the checkpoint (it may be a mapped file).
///   y[i] = row index[i] of the table, as f32;  index[i] < 0 gives zeros
/// Types: f32, bf16, or f8_e4m3 with one e8m0 scale per row and 32 columns (value * scale). Serves
/// embeddings and Engram tables. Precision: exact; every bf16 and e4m3 * 2^n value is also a bf16
/// number. `copies` repeats each row: y is [count, copies, dim] (the residual streams start equal,
/// and `first_only` are the weights with which the first sublayer reads them).
/// Source: model-v41.md 3.3, 4.4 points 1 and 2, 5 step 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor_view.hpp"

namespace deepinfer::kernels {

struct row_table {
  dtype type = dtype::f32;
  const std::byte* data = nullptr;   ///< [rows, dim]
  const std::byte* scale = nullptr;  ///< f8_e4m3 only: [rows, ceil(dim / 32)] e8m0
  std::int64_t rows = 0;
  std::int64_t dim = 0;
};

struct lookup_args {
  static constexpr const char* op_name = "lookup";
  const row_table* table = nullptr;
  const std::int32_t* index32 = nullptr;  ///< [count] ids below table->rows, or
  const std::int64_t* index64 = nullptr;  ///< [count] the same as 64-bit; exactly one is set
  float* y = nullptr;                     ///< [count, copies, dim]
  std::int64_t count = 0;
  std::int64_t copies = 1;
  bool bf16 = false;            ///< released: rounds to bf16 (only f32 tables change)
  float* first_only = nullptr;  ///< [count, copies] set to 1, 0, .., 0 per row; null: not wanted
};
void lookup_ref(const stream_ref&, const lookup_args&);
void lookup_avx2(const stream_ref&, const lookup_args&);
/// Aborts on a table of another type and on an id past its end.
void check_lookup(const lookup_args&);

/// Picks rows of an f32 matrix: y[i] = x[index[i]], zeros where index[i] < 0.
struct gather_args {
  static constexpr const char* op_name = "gather";
  const float* x = nullptr;             ///< [*, dim]
  const std::int32_t* index = nullptr;  ///< [count]
  float* y = nullptr;                   ///< [count, dim], must not alias x
  std::int64_t count = 0;
  std::int64_t dim = 0;
};
void gather_ref(const stream_ref&, const gather_args&);

}  // namespace deepinfer::kernels
