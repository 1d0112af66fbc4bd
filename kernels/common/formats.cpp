#include "kernels/common/formats.hpp"

namespace deepinfer::kernels {

std::uint8_t e4m3_encode(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
  if (magnitude < 0x3c800000u) {  // below 2^-6: steps of 2^-9; adding 2^14 rounds at that step
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(shifted) & 0xffu));
  }
  const std::uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  const std::uint32_t code = (rounded >> 20) - (120u << 3);
  return static_cast<std::uint8_t>(sign | (code > 0x7eu ? 0x7eu : code));
}

std::uint8_t e2m1_encode(float value) {
  const auto sign = static_cast<std::uint8_t>(std::signbit(value) ? 8u : 0u);
  const float size = std::fabs(value);
  // Borders between codes; a tie goes to the even code.
  const unsigned code = size <= 0.25F   ? 0u
                        : size < 0.75F  ? 1u
                        : size <= 1.25F ? 2u
                        : size < 1.75F  ? 3u
                        : size <= 2.5F  ? 4u
                        : size < 3.5F   ? 5u
                        : size <= 5.0F  ? 6u
                                        : 7u;
  return static_cast<std::uint8_t>(sign | code);
}

}  // namespace deepinfer::kernels
