/// Rounds rows to a quantised format and back ("fake quantisation"): what a consumer of the stored
/// form would read.
///   q8:        groups of 32, s = pow2ceil(max(amax, 1e-4) / 448), value e4m3(x / s) * s
///   q4_index:  groups of 32, s = pow2ceil(max(amax, 6 * 2^-126) / 6), value e2m1(x / s) * s
///   q4_memory: groups of 16, s = e4m3(min(max(amax, 6 * 2^-9) / 6, 448)), value e2m1(x / s) * s
/// Shapes: x and y [rows, dim] f32 contiguous; y may be x. dim need not be a multiple of the group:
/// the last group is shorter. Precision: exact (every result is a bf16 number).
/// Source: model-v41.md 4.2.
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

enum class quantiser : std::uint8_t { none, q8, q4_index, q4_memory };

struct quantise_args {
  static constexpr const char* op_name = "quantise";
  const float* x = nullptr;  ///< [rows, dim]
  float* y = nullptr;        ///< [rows, dim], may be x
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  quantiser format = quantiser::none;  ///< none copies
};

void quantise_ref(const stream_ref&, const quantise_args&);
void quantise_avx2(const stream_ref&, const quantise_args&);

/// Columns that share a scale.
constexpr std::int64_t group_of(quantiser format) {
  return format == quantiser::q4_memory ? 16 : 32;
}

/// The scale of one group, and the rounded values (value * scale) of `count` <= group entries.
float quantise_group(quantiser format, const float* x, float* y, std::int64_t count);

}  // namespace deepinfer::kernels
