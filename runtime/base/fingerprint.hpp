/// Tells things apart by 64 bits: FNV-1a over texts and numbers. Not for secrets: who wants to can
/// make two that are equal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/core.h>

namespace deepinfer {

class fingerprint {
public:
  /// With its length, so that what was added can't run together.
  fingerprint& add(std::string_view bytes) {
    add(std::uint64_t{bytes.size()});
    for (const char c : bytes) mix(static_cast<unsigned char>(c));
    return *this;
  }
  fingerprint& add(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) mix(static_cast<unsigned char>(number >> shift));
    return *this;
  }

  /// 16 hexadecimal digits.
  std::string text() const { return fmt::format("{:016x}", state_); }

private:
  void mix(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001b3u; }

  std::uint64_t state_ = 0xcbf29ce484222325u;
};

}  // namespace deepinfer
