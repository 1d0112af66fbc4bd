#include "runtime/core/prefix_key.hpp"

#include <bit>

#include "runtime/base/random.hpp"

namespace deepinfer {
namespace {

// MurmurHash3's 64-bit finaliser (A. Appleby, public domain): zero stays zero, hence the increment.
std::uint64_t mix_low(std::uint64_t z) {
  z += 0xC2B2AE3D27D4EB4Fu;
  z = (z ^ (z >> 33)) * 0xFF51AFD7ED558CCDu;
  z = (z ^ (z >> 33)) * 0xC4CEB9FE1A85EC53u;
  return z ^ (z >> 33);
}

prefix_key absorb(prefix_key key, std::uint64_t word) {
  return {split_mix64(key.high ^ word), mix_low(key.low ^ word)};
}

}  // namespace

std::uint64_t prefix_salt(std::string_view text) {
  constexpr std::size_t word_bytes = 8;
  prefix_key key{0x452821E638D01377u, 0xBE5466CF34E90C6Cu};  // digits of pi
  key = absorb(key, text.size());
  for (std::size_t begin = 0; begin < text.size(); begin += word_bytes) {
    std::uint64_t word = 0;
    for (const char c : text.substr(begin, word_bytes))
      word = word << 8 | static_cast<unsigned char>(c);
    key = absorb(key, word);
  }
  // Of both lanes: texts that happen to meet in one of them do not meet here.
  const auto salt = split_mix64(key.high ^ std::rotl(key.low, 32));
  return salt == 0 ? 1 : salt;
}

prefix_key prefix_root(std::uint64_t salt) {
  return absorb({0x243F6A8885A308D3u, 0x13198A2E03707344u}, salt);  // digits of pi
}

prefix_key prefix_next(prefix_key parent, std::span<const token_id> ids) {
  // The length first: blocks of other sizes have other keys.
  auto key = absorb(parent, ids.size());
  for (const auto id : ids) key = absorb(key, static_cast<std::uint32_t>(id));
  return key;
}

}  // namespace deepinfer
