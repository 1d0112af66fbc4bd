/// Activations as int8: groups of 32 columns share one f32 scale, value = code * scale.
///   scale = max |x| / 127 of the group, code = round(x * (127 / max |x|)), to nearest even
/// Shapes: x [rows, dim] f32 with stride; codes [rows, padded(dim)], the columns past dim 0; scales
/// [rows, padded(dim) / 32]. Codes lie in [-127, 127]: products rely on it.
/// A group whose max |x| is below 2^-110 has scale and codes 0. A NaN or an infinity in x gives a
/// group of NaN scale and codes 0, so that it shows.
/// Used by `fast` numerics: made once per input, read by every product of that input.
/// Precision: |x - value| <= scale * (1/2 + 2^-15). The twins give the same bits.
/// Source: performance.md 3.
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

inline constexpr std::int64_t int8_group = 32;
inline constexpr float int8_smallest = 0x1p-110F;  ///< groups of smaller values are 0

constexpr std::int64_t int8_padded(std::int64_t dim) {
  return (dim + int8_group - 1) / int8_group * int8_group;
}

/// Rows of codes and their scales; read by products whose weights are i8 or i4.
struct int8_rows {
  const std::int8_t* codes = nullptr;  ///< [rows, padded(in)]
  const float* scales = nullptr;       ///< [rows, padded(in) / 32]
};

struct to_int8_args {
  static constexpr const char* op_name = "to_int8";
  const float* x = nullptr;
  std::int8_t* codes = nullptr;
  float* scales = nullptr;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  std::int64_t x_stride = 0;  ///< 0: dim
};
void to_int8_ref(const stream_ref&, const to_int8_args&);
void to_int8_avx2(const stream_ref&, const to_int8_args&);

}  // namespace deepinfer::kernels
