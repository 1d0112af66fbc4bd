/// Weights in the layout the products read: panels of 16 outputs, the last one padded with zeros.
/// Packed once at load from any stored type; dequantising is value * scale.
///
///   type   cell                    layout of a panel   from
///   f32    f32                     [in, 16]            f32
///   bf16   bf16                    [in, 16]            bf16, e4m3 * 2^n: exact
///   e2m1   4 bits, e8m0 per 32     packed_e2m1.hpp     FP4: exact
///   i8     int8, a scale per 32    packed_int8.hpp     f32, bf16, e4m3: rounds
///   i4     4 bits, e8m0 per 32     packed_int8.hpp     FP4: exact
/// The first three multiply f32 activations; i8 and i4 multiply int8 activations (int8_rows.hpp).
/// Scales: f8_e4m3 [out, in] has e8m0 [ceil(out/32), ceil(in/32)]; FP4 is i8 [out, in/2] (low
/// nibble = even input) with e8m0 [out, ceil(in/32)]. Stored data may lie at any address; the
/// packed memory is the caller's and should be 64-byte aligned.
/// Source: model-v41.md 3, 4.1; performance.md 3.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/tensor_view.hpp"

namespace deepinfer::kernels {

inline constexpr std::int64_t panel_width = 16;

enum class panel_type : std::uint8_t { f32, bf16, e2m1, i8, i4 };

/// Whether products of this type read int8 activations.
constexpr bool reads_int8(panel_type type) {
  return type == panel_type::i8 || type == panel_type::i4;
}

/// A handle; plain and copyable.
struct packed_matrix {
  panel_type type = panel_type::f32;
  std::int64_t out = 0;
  std::int64_t in = 0;
  const std::byte* data = nullptr;

  /// Memory that one pass over the matrix reads.
  std::size_t bytes() const;
  std::int64_t panels() const { return (out + panel_width - 1) / panel_width; }
};

/// A matrix as stored: y = W x, W [out, in] row-major.
struct stored_matrix {
  dtype type = dtype::f32;  ///< f32, bf16, f8_e4m3, or i8 (FP4 pairs)
  std::int64_t out = 0;
  std::int64_t in = 0;  ///< logical inputs, for FP4 twice the stored columns
  const std::byte* data = nullptr;
  const std::byte* scale = nullptr;  ///< e8m0; null: 1 (f32 and bf16 have none)
};

/// Which products a matrix is packed for.
enum class packing : std::uint8_t {
  exact,  ///< f32 activations; no weight is rounded
  fast,   ///< int8 activations; f32, bf16 and e4m3 weights round to int8
};

constexpr panel_type panel_type_of(dtype stored, packing how = packing::exact) {
  const bool is_fp4 = stored == dtype::i8;
  if (how == packing::fast) return is_fp4 ? panel_type::i4 : panel_type::i8;
  return is_fp4 ? panel_type::e2m1 : stored == dtype::f32 ? panel_type::f32 : panel_type::bf16;
}

/// Bytes of a packed matrix.
std::size_t packed_bytes(panel_type type, std::int64_t out, std::int64_t in);

/// Packs into `memory` (packed_bytes of panel_type_of(source.type, how)). Single-threaded, any
/// thread.
packed_matrix pack_matrix(const stored_matrix& source, packing how, std::byte* memory);

/// W[row, :] of a stored matrix as f32 (`in` values): the definition that packing follows.
void dequantise_row(const stored_matrix& source, std::int64_t row, float* out);

/// W[row, :] of a packed matrix as f32 (`in` values), scales applied.
void unpack_row(const packed_matrix& matrix, std::int64_t row, float* out);

}  // namespace deepinfer::kernels
