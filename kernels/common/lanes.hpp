/// Sums in fixed orders that vectorise. An order depends on nothing but the length, so equal inputs
/// give equal bits on every path.
///
/// dot: sixteen running sums; entry i goes to lane i mod 16; lanes are added pairwise at distance
/// 8, 4, 2, 1.
/// sum_in_eights: runs of 32 entries go to four times eight running sums, further runs of 8 to the
/// first eight. The total: entries that fill no run, in order, then lane 0 to 7, each the sum of
/// its four in order. The released goldens were recorded with this order, and some of their bf16
/// values hang on it.
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

/// Sum of value(0) .. value(count - 1).
template <class Value>
float sum_in_eights(std::int64_t count, Value&& value) {
  constexpr std::int64_t width = 8, parts = 4;
  float running[parts][width] = {};
  std::int64_t i = 0;
  for (; i + parts * width <= count; i += parts * width)
    for (std::int64_t part = 0; part < parts; ++part)
      for (std::int64_t l = 0; l < width; ++l) running[part][l] += value(i + part * width + l);
  for (; i + width <= count; i += width)
    for (std::int64_t l = 0; l < width; ++l) running[0][l] += value(i + l);
  float sum = 0;
  for (; i < count; ++i) sum += value(i);
  for (std::int64_t l = 0; l < width; ++l) {
    for (std::int64_t part = 1; part < parts; ++part) running[0][l] += running[part][l];
    sum += running[0][l];
  }
  return sum;
}

inline float sum_of_squares(const float* x, std::int64_t count) {
  return sum_in_eights(count, [x](std::int64_t i) { return x[i] * x[i]; });
}

}  // namespace deepinfer::kernels
