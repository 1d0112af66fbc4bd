/// Sums in a fixed order that vectorises: sixteen running sums, combined by a fixed tree.
///
/// Entry i goes to lane i mod 16; lanes are added pairwise at distance 8, 4, 2, 1. The order
/// depends on nothing but the length, so equal inputs give equal bits on every path.
#pragma once

#include <cstdint>

namespace deepinfer::kernels {

inline constexpr std::int64_t lanes = 16;

/// Combines (and overwrites) sixteen running sums.
inline float lane_sum(float* lane) {
  for (std::int64_t width = lanes / 2; width > 0; width /= 2)
    for (std::int64_t i = 0; i < width; ++i) lane[i] += lane[i + width];
  return lane[0];
}

inline float dot(const float* a, const float* b, std::int64_t count) {
  float lane[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::int64_t l = 0; l < lanes; ++l) lane[l] += a[i + l] * b[i + l];
  for (std::int64_t l = 0; i + l < count; ++l) lane[l] += a[i + l] * b[i + l];
  return lane_sum(lane);
}

inline float sum_of_squares(const float* x, std::int64_t count) {
  return dot(x, x, count);
}

}  // namespace deepinfer::kernels
