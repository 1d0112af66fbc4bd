/// Panels for int8 activations: i8 (weights rounded to 7 bits) and i4 (FP4 as it is), both
/// with a scale per 32 inputs.
///
///   weight = code * scale     |code| <= 64 (i8), code = 2 * FP4 value, scale = 2^n / 2 (i4)
/// A panel is one stream: units of a line of scales and then the codes of the groups they belong to
/// (fewer in the last unit). Groups = ceil(in / 32).
///   i8, units of 2 groups: bf16 [2][16], bytes [2][8 quads][16 outputs][4 columns] = code + 64
///   i4, units of 4 groups: e8m0 [4][16], bytes [4][8 quads][8 outputs][4 columns]
///                          = FP4 code of output o | that of output o + 8 << 4
/// Columns past `in` and outputs past `out` have the code 0; the latter have the scale 0 or 2^-127.
/// Products with int8 activations, in this order for every output and row:
///   dot = exact integer sum of code * activation code over the 32 columns of a group
///   total = fma(dot, scale_x * scale, total), groups in order; scale_x * scale is rounded first
/// so the reference and every twin give the same bits.
/// i8 rounding: of the scales bf16(max |w| / 64) and the smallest power of two with |code| <= 64,
/// the one with the smaller squared error (often the latter for E4M3 weights: the upper binades
/// stay exact); codes to nearest, ties to even. |w - code * scale| <= scale / 2. A group with a NaN
/// or an infinity has a NaN scale; one of values below 2^-119 is 0. i4 is exact, NaN scales stay.
/// Why 7 bits: products of unsigned (code + 64) and signed activation codes then fit the 16-bit
/// lanes of a multiply-add of byte pairs, even two of them added; 8 bits need a sign step per
/// product and half again the time.
/// Not a contract: packed_matrix and the products include it. Source: performance.md 3.
#pragma once

#include "kernels/linear/packed_matrix.hpp"

namespace deepinfer::kernels {

inline constexpr std::int64_t code_group = 32;  ///< columns that share a scale

std::size_t packed_i8_bytes(std::int64_t out, std::int64_t in);
void pack_i8(const stored_matrix& source, std::byte* memory);
void unpack_i8_row(const packed_matrix& matrix, std::int64_t row, float* out);

std::size_t packed_i4_bytes(std::int64_t out, std::int64_t in);
void pack_i4(const stored_matrix& source, std::byte* memory);
void unpack_i4_row(const packed_matrix& matrix, std::int64_t row, float* out);

/// Where things are in the panels of a type, in bytes.
struct int8_layout {
  std::int64_t unit_groups;
  std::int64_t group_bytes;  ///< codes
  std::int64_t scale_bytes;  ///< one scale

  static constexpr std::int64_t line = 64;

  constexpr std::int64_t unit_bytes() const { return line + unit_groups * group_bytes; }
  /// From one panel to the next.
  constexpr std::int64_t stride(std::int64_t in) const {
    const auto groups = (in + code_group - 1) / code_group;
    return (groups + unit_groups - 1) / unit_groups * line + groups * group_bytes;
  }
  constexpr std::int64_t codes_at(std::int64_t group) const {
    return group / unit_groups * unit_bytes() + line + group % unit_groups * group_bytes;
  }
  constexpr std::int64_t scales_at(std::int64_t group) const {
    return group / unit_groups * unit_bytes() + group % unit_groups * panel_width * scale_bytes;
  }
};
inline constexpr int8_layout i8_layout{2, code_group* panel_width, 2};
inline constexpr int8_layout i4_layout{4, code_group* panel_width / 2, 1};

/// The codes of W[row, 32 * group ..] of an i8 or i4 matrix; returns their scale.
float int8_group_codes(const packed_matrix& matrix, std::int64_t row, std::int64_t group,
                       std::int32_t* codes);

}  // namespace deepinfer::kernels
