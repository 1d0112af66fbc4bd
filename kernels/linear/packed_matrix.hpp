/// Weights in the layout the products read: panels of 16 outputs, [ceil(out/16), in, 16], the last
/// panel padded with zeros. Packed once at load from any stored type; dequantising is value
/// * scale.
///
/// Storage: bf16 where every value is a bf16 number (bf16, e4m3 * 2^n, e2m1 * 2^n all are), else
/// f32.
/// Scales: f8_e4m3 [out, in] has e8m0 [ceil(out/32), ceil(in/32)]; FP4 is i8 [out, in/2] (low
/// nibble = even input) with e8m0 [out, ceil(in/32)]. Stored data may lie at any address; the
/// packed memory is the caller's and should be 64-byte aligned.
/// Source: model-v41.md 3, 4.1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/tensor_view.hpp"

namespace deepinfer::kernels {

inline constexpr std::int64_t panel_width = 16;

enum class panel_type : std::uint8_t { f32, bf16 };

/// A handle; plain and copyable.
struct packed_matrix {
  panel_type type = panel_type::f32;
  std::int64_t out = 0;
  std::int64_t in = 0;
  const std::byte* data = nullptr;

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

/// f32 stays f32; everything else packs as bf16.
constexpr panel_type panel_type_of(dtype stored) {
  return stored == dtype::f32 ? panel_type::f32 : panel_type::bf16;
}

/// Bytes of a packed matrix.
constexpr std::size_t packed_bytes(panel_type type, std::int64_t out, std::int64_t in) {
  const auto elements = (out + panel_width - 1) / panel_width * panel_width * in;
  return static_cast<std::size_t>(elements) * (type == panel_type::bf16 ? 2 : 4);
}

/// Packs into `memory` (packed_bytes of panel_type_of(source.type)). Single-threaded, any thread.
packed_matrix pack_matrix(const stored_matrix& source, std::byte* memory);

/// W[row, :] of a stored matrix as f32 (`in` values): the definition that packing follows.
void dequantise_row(const stored_matrix& source, std::int64_t row, float* out);

}  // namespace deepinfer::kernels
