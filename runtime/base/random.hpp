/// Random numbers of the engine: Philox4x32-10, SplitMix64. Nothing else draws.
///
/// A number is a pure function of the request's 64-bit seed and the position of the token it helps
/// to produce: key = seed, counter = (position, purpose, draw, 0). Not batch, row, step, rank,
/// depth, drafts or retries [I43]. Source: Salmon et al., "Parallel random numbers: as easy as 1,
/// 2, 3" (SC 2011), and architecture decision "Random numbers".
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace deepinfer {

/// What a draw is for; the second counter word.
enum class draw_purpose : std::uint32_t { target = 0, accept = 1, residual = 2, draft = 3 };

constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
      static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
      static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

/// Four words of draw `draw` for the token at `position` of a request seeded with `seed`.
constexpr std::array<std::uint32_t, 4> random_words(std::uint64_t seed, std::uint32_t position,
                                                    draw_purpose purpose, std::uint32_t draw) {
  return philox4x32({position, static_cast<std::uint32_t>(purpose), draw, 0},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

/// ((word >> 8) + 0.5) * 2^-24: in (0, 1), never 0 or 1. A double, because the largest value,
/// 1 - 2^-25, is not a float: it would round to 1 and the noise made from it would be infinite.
constexpr double unit_real(std::uint32_t word) {
  return (static_cast<double>(word >> 8) + 0.5) * 0x1p-24;
}

/// -log(-log u) of the word's unit_real; at most largest_gumbel.
inline float gumbel_of(std::uint32_t word) {
  return static_cast<float>(-std::log(-std::log(unit_real(word))));
}
inline constexpr double largest_gumbel = 17.35;  // -log(-log(1 - 2^-25)) = 17.3287

/// Gumbel noise of vocabulary entry `id`: u from draw id div 4, word id mod 4.
inline float gumbel_noise(std::uint64_t seed, std::uint32_t position, draw_purpose purpose,
                          std::uint32_t id) {
  return gumbel_of(random_words(seed, position, purpose, id / 4)[id % 4]);
}

/// SplitMix64's finaliser, its increment included.
constexpr std::uint64_t split_mix64(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Seed of choice `i` of a request with n > 1: mix(s, 0) = s.
constexpr std::uint64_t choice_seed(std::uint64_t seed, std::uint32_t choice) {
  return choice == 0 ? seed : split_mix64(seed + choice * 0x9E3779B97F4A7C15u);
}

}  // namespace deepinfer
