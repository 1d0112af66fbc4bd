/// SHA-256 (FIPS 180-4), for tests that compare a whole table with a published digest.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

namespace sha256_detail {

/// The first 32 bits of a root's fraction; a double holds them and the root's whole part.
inline std::uint32_t fraction_bits(double root) {
  return static_cast<std::uint32_t>((root - std::floor(root)) * 0x1p32);
}

}  // namespace sha256_detail

/// Lower-case hexadecimal digest.
inline std::string sha256(std::string_view text) {
  std::array<std::uint32_t, 64> constants{};
  std::array<std::uint32_t, 8> state{};
  std::uint32_t prime = 1;
  for (std::size_t n = 0; n < constants.size(); ++n) {
    for (bool is_prime = false; !is_prime;) {
      ++prime;
      is_prime = true;
      for (std::uint32_t d = 2; d * d <= prime; ++d) is_prime = is_prime && prime % d != 0;
    }
    constants[n] = sha256_detail::fraction_bits(std::cbrt(prime));
    if (n < state.size()) state[n] = sha256_detail::fraction_bits(std::sqrt(prime));
  }
  std::string padded(text);
  padded.push_back('\x80');
  while (padded.size() % 64 != 56) padded.push_back('\0');
  for (int shift = 56; shift >= 0; shift -= 8)
    padded.push_back(static_cast<char>((text.size() * 8) >> shift & 0xFF));
  for (std::size_t block = 0; block < padded.size(); block += 64) {
    std::array<std::uint32_t, 64> word{};
    for (std::size_t at = 0; at < 64; ++at)
      word[at / 4] = word[at / 4] << 8 | static_cast<unsigned char>(padded[block + at]);
    for (std::size_t t = 16; t < 64; ++t)
      word[t] = (std::rotr(word[t - 2], 17) ^ std::rotr(word[t - 2], 19) ^ word[t - 2] >> 10) +
                word[t - 7] +
                (std::rotr(word[t - 15], 7) ^ std::rotr(word[t - 15], 18) ^ word[t - 15] >> 3) +
                word[t - 16];
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t t = 0; t < 64; ++t) {
      const auto first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                         ((e & f) ^ (~e & g)) + constants[t] + word[t];
      const auto second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
    }
    const std::array<std::uint32_t, 8> added{a, b, c, d, e, f, g, h};
    for (std::size_t n = 0; n < state.size(); ++n) state[n] += added[n];
  }
  std::string digest;
  for (const auto value : state)
    for (int shift = 28; shift >= 0; shift -= 4) digest += "0123456789abcdef"[value >> shift & 15];
  return digest;
}

}  // namespace deepinfer
