#include "runtime/model/engram_constants.hpp"

#include <array>
#include <limits>

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

__extension__ using wide = unsigned __int128;

/// numpy's SeedSequence for one small entropy integer, and the eight words PCG64 asks of it.
std::array<std::uint32_t, 8> seed_words(std::uint64_t entropy) {
  constexpr std::uint32_t multiply_a = 0x931e8875u, multiply_b = 0x58f38dedu;
  std::uint32_t hash = 0x43b0d7e5u;
  const auto hash_mix = [&hash](std::uint32_t value) {
    value ^= hash;
    hash *= multiply_a;
    value *= hash;
    return value ^ (value >> 16);
  };
  std::array<std::uint32_t, 4> pool{};
  for (std::size_t i = 0; i < pool.size(); ++i)
    pool[i] = hash_mix(i < 2 ? static_cast<std::uint32_t>(entropy >> (32 * i)) : 0u);
  for (std::size_t from = 0; from < pool.size(); ++from)
    for (std::size_t to = 0; to < pool.size(); ++to) {
      if (from == to) continue;
      const auto mixed = 0xca01f9ddu * pool[to] - 0x4973f715u * hash_mix(pool[from]);
      pool[to] = mixed ^ (mixed >> 16);
    }
  std::array<std::uint32_t, 8> words{};
  hash = 0x8b51f9ddu;
  for (std::size_t i = 0; i < words.size(); ++i) {
    auto value = pool[i % pool.size()] ^ hash;
    hash *= multiply_b;
    value *= hash;
    words[i] = value ^ (value >> 16);
  }
  return words;
}

/// PCG64 (XSL-RR 128/64), O'Neill 2014.
class pcg64 {
public:
  explicit pcg64(std::uint64_t seed) {
    const auto words = seed_words(seed);
    const auto pair = [&words](std::size_t i) {
      return words[2 * i] | (std::uint64_t{words[2 * i + 1]} << 32);
    };
    increment_ = (((wide{pair(2)} << 64) | pair(3)) << 1) | 1u;
    advance();
    state_ += (wide{pair(0)} << 64) | pair(1);
    advance();
  }

  std::uint64_t next() {
    advance();
    const auto folded =
      static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
    const auto turn = static_cast<unsigned>(state_ >> 122);
    return (folded >> turn) | (folded << ((64u - turn) & 63u));
  }

  /// Uniform below `count` (more than 2^32), by Lemire's method.
  std::uint64_t below(std::uint64_t count) {
    auto product = wide{next()} * count;
    if (static_cast<std::uint64_t>(product) < count) {
      const auto threshold = (0 - count) % count;
      while (static_cast<std::uint64_t>(product) < threshold) product = wide{next()} * count;
    }
    return static_cast<std::uint64_t>(product >> 64);
  }

private:
  void advance() {
    constexpr auto multiplier = (wide{2549297995355413924u} << 64) | 4865540595714422341u;
    state_ = state_ * multiplier + increment_;
  }

  wide state_ = 0;
  wide increment_ = 0;
};

}  // namespace

std::vector<std::int64_t> engram_multipliers(std::int32_t layer, std::int64_t classes,
                                             std::int32_t count) {
  DI_CHECK(classes >= 1 && classes < (std::int64_t{1} << 29), "{} token classes", classes);
  pcg64 random(std::uint64_t{10007} * static_cast<std::uint64_t>(layer));
  const auto limit = std::numeric_limits<std::int64_t>::max() / classes / 2;
  std::vector<std::int64_t> multipliers;
  for (std::int32_t i = 0; i < count; ++i) {
    const auto drawn = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(limit)));
    multipliers.push_back(2 * drawn + 1);
  }
  return multipliers;
}

engram_constants make_engram_constants(const engram_config& engram,
                                       const engram_layer_config& layer) {
  engram_constants constants;
  constants.primes = layer.primes;
  std::int64_t offset = 0;
  for (const auto prime : layer.primes) {
    constants.offsets.push_back(offset);
    offset += prime;
  }
  constants.multipliers = engram_multipliers(layer.layer, engram.class_count, engram.max_ngram);
  return constants;
}

}  // namespace deepinfer
