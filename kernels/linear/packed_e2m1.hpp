/// FP4 (e2m1) panels for f32 activations: 4 bits a weight and one e8m0 scale per 32 inputs.
///
/// A panel of 16 outputs: the codes of its groups of 32 inputs, 256 bytes each, then their scales,
/// 16 bytes each. Inputs past `in` and outputs past `out` have code 0, the latter scale 2^0.
/// Within a group 32 bytes hold four inputs k. Output o has byte
///   o % 8 / 4 * 16 + k % 2 * 8 + o % 4 * 2 + o / 8
/// and there the low nibble for k < 2. So a vector twin that maps the 32 low or high nibbles to
/// bf16 halves by two byte shuffles, and joins those, gets eight outputs of one input in every
/// vector.
/// Nothing is rounded: value * 2^n; scale byte 255 is NaN. Not a contract: packed_matrix and the
/// products include it.
/// Source: model-v41.md 4.1; performance.md 3.
#pragma once

#include "kernels/linear/packed_matrix.hpp"

namespace deepinfer::kernels {

inline constexpr std::int64_t e2m1_group = 32;         ///< inputs that share a scale
inline constexpr std::int64_t e2m1_group_bytes = 256;  ///< codes of a group and panel

constexpr std::int64_t e2m1_groups(std::int64_t in) {
  return (in + e2m1_group - 1) / e2m1_group;
}

/// A panel's scales follow its codes.
constexpr std::int64_t e2m1_panel_bytes(std::int64_t in) {
  return e2m1_groups(in) * (e2m1_group_bytes + panel_width);
}

/// Where a weight lies in its panel: the byte, and whether its high nibble.
struct e2m1_place {
  std::int64_t byte;
  bool high;
};
constexpr e2m1_place place_of_e2m1(std::int64_t output, std::int64_t input) {
  const auto o = output % panel_width, k = input % 4;
  return {input / 4 * 32 + o % 8 / 4 * 16 + k % 2 * 8 + o % 4 * 2 + o / 8, k >= 2};
}

std::size_t packed_e2m1_bytes(std::int64_t out, std::int64_t in);
void pack_e2m1(const stored_matrix& source, std::byte* memory);
void unpack_e2m1_row(const packed_matrix& matrix, std::int64_t row, float* out);

}  // namespace deepinfer::kernels
