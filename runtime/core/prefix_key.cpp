#include "runtime/core/prefix_key.hpp"

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
