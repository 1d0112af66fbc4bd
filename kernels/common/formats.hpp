/// Number formats of the released checkpoints, exactly: bf16, E4M3 (FN), E8M0, E2M1.
///
/// Encoders round to nearest, ties to even. E4M3 has no infinity: max 448, smallest normal 2^-6,
/// subnormal step 2^-9, codes 0x7f and 0xff are NaN. E8M0 byte b is 2^(b-127), 255 is NaN. E2M1
/// codes 0..7 are 0, .5, 1, 1.5, 2, 3, 4, 6, bit 3 is the sign; two codes share a byte, low nibble
/// first.
/// Source: model-v41.md 4.1, 4.2.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace deepinfer::kernels {

/// Element `i` of a stored tensor: a mapped file's may lie at any address.
template <class T>
T stored_element(const std::byte* data, std::int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

constexpr float bf16_decode(std::uint16_t code) {
  return std::bit_cast<float>(std::uint32_t{code} << 16);
}

/// NaN stays NaN; overflow rounds to infinity.
constexpr std::uint16_t bf16_encode(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float bf16_round(float value) {
  return bf16_decode(bf16_encode(value));
}

constexpr float e8m0_decode(std::uint8_t code) {
  if (code == 255) return std::bit_cast<float>(0x7fc00000u);
  if (code == 0) return std::bit_cast<float>(0x00400000u);
  return std::bit_cast<float>(std::uint32_t{code} << 23);
}

constexpr float e4m3_decode(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80u) << 24, exponent = (code >> 3) & 15u, low = code & 7u;
  if (exponent == 15 && low == 7) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {  // a subnormal: low steps of 2^-9
    const float value = static_cast<float>(low) * 0x1p-9f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 120u) << 23) | (low << 20));
}

/// Values beyond the last rounding border give +-448; callers clamp before. NaN gives NaN.
std::uint8_t e4m3_encode(float value);

constexpr float e2m1_decode(std::uint8_t code) {
  constexpr float values[8] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const float value = values[code & 7u];
  return (code & 8u) ? -value : value;
}

/// Values beyond 6 give +-6. -0 keeps its sign.
std::uint8_t e2m1_encode(float value);

/// The smallest power of two >= value, from its bits; value must be positive and normal.
constexpr float pow2ceil(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t exponent = (bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1u : 0u);
  return std::bit_cast<float>(exponent << 23);
}

}  // namespace deepinfer::kernels
