/// Rotary position embedding of the last `rotary` entries of each head, adjacent pairs.
///   f_i = theta^(-2i/r), i < r/2
///   YaRN, if original_positions > 0: corr(b) = r * ln(original / (2 pi b)) / (2 ln theta)
///     low = max(floor(corr(beta_fast)), 0), high = min(ceil(corr(beta_slow)), r - 1)
///     ramp_i = clamp((i - low) / max(high - low, .001), 0, 1)
///     f_i <- f_i / factor * ramp_i + f_i * (1 - ramp_i)
///   angle = f32(position) * f32(f_i);  (a, b) -> (a cos - b sin, a sin + b cos)
///   inverse: sin negated
/// Amplitude is 1. The angles of a step are made once per frequency table (rope_angles) and used by
/// all layers. Precision: f_i in double, rounded to f32; sin and cos of the f32 angle correct to
/// f32; rotation in f32, one rounding to bf16 if `bf16` (the unrotated entries are left alone), the
/// same bits in every twin. A negative position gives the identity. Source: model-v41.md 7.
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct rope_config {
  double theta = 10000;
  std::int32_t rotary = 0;              ///< r, even
  std::int64_t original_positions = 0;  ///< 0: no YaRN
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
};

/// Writes r/2 frequencies. Called at load.
void rope_frequencies(const rope_config& config, float* frequency);

struct rope_angles_args {
  static constexpr const char* op_name = "rope_angles";
  const std::int32_t* position = nullptr;  ///< [tokens]
  const float* frequency = nullptr;        ///< [rotary / 2]
  float* angles = nullptr;                 ///< [tokens, rotary / 2, 2]: cos, sin
  std::int64_t tokens = 0;
  std::int32_t rotary = 0;
};
void rope_angles_ref(const stream_ref&, const rope_angles_args&);

struct rope_args {
  static constexpr const char* op_name = "rope";
  float* x = nullptr;             ///< [tokens, heads, dim], in place
  const float* angles = nullptr;  ///< [tokens, rotary / 2, 2]
  std::int64_t tokens = 0;
  std::int64_t heads = 1;
  std::int64_t dim = 0;
  std::int32_t rotary = 0;
  bool inverse = false;
  bool bf16 = false;
};
void rope_ref(const stream_ref&, const rope_args&);
void rope_avx2(const stream_ref&, const rope_args&);

}  // namespace deepinfer::kernels
