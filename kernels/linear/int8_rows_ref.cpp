#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/linear/int8_rows.hpp"

namespace deepinfer::kernels {
namespace {

/// The scale of `count` <= 32 values; codes past them are 0.
float encode_group(const float* x, std::int64_t count, std::int8_t* codes) {
  std::fill(codes, codes + int8_group, std::int8_t{0});
  std::uint32_t most_bits = 0;  // bits of |x| are in the order of its values, NaN last
  for (std::int64_t i = 0; i < count; ++i)
    most_bits = std::max(most_bits, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu);
  const auto most = std::bit_cast<float>(most_bits);
  if (!std::isfinite(most)) return std::numeric_limits<float>::quiet_NaN();
  if (most < int8_smallest) return 0;
  const float inverse = 127.0F / most;
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<std::int8_t>(std::nearbyint(x[i] * inverse));
  return most / 127.0F;
}

}  // namespace

void to_int8_ref(const stream_ref& stream, const to_int8_args& a) {
  const auto stride = a.x_stride ? a.x_stride : a.dim;
  const auto groups = int8_padded(a.dim) / int8_group;
  stream.for_ranges(a.rows, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row)
      for (std::int64_t group = 0; group < groups; ++group)
        a.scales[row * groups + group] = encode_group(
          a.x + row * stride + group * int8_group, std::min(int8_group, a.dim - group * int8_group),
          a.codes + (row * groups + group) * int8_group);
  });
}

}  // namespace deepinfer::kernels
