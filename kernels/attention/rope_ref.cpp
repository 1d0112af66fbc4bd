#include "kernels/attention/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/common/formats.hpp"

namespace deepinfer::kernels {
namespace {

/// The pair index at which `turns` rotations fit into the original context.
double correction(const rope_config& c, double turns) {
  const auto positions = static_cast<double>(c.original_positions);
  return c.rotary * std::log(positions / (2.0 * std::numbers::pi * turns)) /
         (2.0 * std::log(c.theta));
}

}  // namespace

void rope_frequencies(const rope_config& c, float* frequency) {
  const bool is_yarn = c.original_positions > 0;
  const double low = is_yarn ? std::max(std::floor(correction(c, c.beta_fast)), 0.0) : 0.0;
  const double high =
    is_yarn ? std::min(std::ceil(correction(c, c.beta_slow)), c.rotary - 1.0) : 0.0;
  for (std::int32_t i = 0; i < c.rotary / 2; ++i) {
    double f = std::pow(c.theta, -2.0 * i / c.rotary);
    if (is_yarn) {
      const double ramp = std::clamp((i - low) / std::max(high - low, 0.001), 0.0, 1.0);
      f = f / c.factor * ramp + f * (1.0 - ramp);
    }
    frequency[i] = static_cast<float>(f);
  }
}

void rope_angles_ref(const stream_ref& stream, const rope_angles_args& a) {
  const auto pairs = a.rotary / 2;
  stream.for_ranges(a.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      float* out = a.angles + token * pairs * 2;
      const auto position = static_cast<float>(std::max(a.position[token], 0));
      for (std::int32_t i = 0; i < pairs; ++i) {
        const float angle = position * a.frequency[i];  // the f32 product, as the release's tables
        out[2 * i] = static_cast<float>(std::cos(static_cast<double>(angle)));
        out[2 * i + 1] = static_cast<float>(std::sin(static_cast<double>(angle)));
      }
    }
  });
}

void rope_ref(const stream_ref& stream, const rope_args& a) {
  const auto pairs = a.rotary / 2;
  const float direction = a.inverse ? -1.0F : 1.0F;
  stream.for_ranges(a.tokens * a.heads, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const float* angle = a.angles + item / a.heads * pairs * 2;
      float* x = a.x + item * a.dim + (a.dim - a.rotary);
      for (std::int32_t i = 0; i < pairs; ++i) {
        const float cosine = angle[2 * i], sine = direction * angle[2 * i + 1];
        const float even = x[2 * i], odd = x[2 * i + 1];
        const float new_even = even * cosine - odd * sine;
        const float new_odd = even * sine + odd * cosine;
        x[2 * i] = a.bf16 ? bf16_round(new_even) : new_even;
        x[2 * i + 1] = a.bf16 ? bf16_round(new_odd) : new_odd;
      }
    }
  });
}

}  // namespace deepinfer::kernels
