#include "runtime/text/bpe_alphabet.hpp"

#include <array>
#include <cstdint>

#include "runtime/base/utf8.hpp"

namespace deepinfer {

namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct alphabet {
  static constexpr std::int16_t none = -1;
  std::array<char16_t, 256> letter_of{};
  std::array<std::int16_t, 0x144> byte_of{};

  constexpr alphabet() {
    for (auto& byte : byte_of) byte = none;
    char16_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      letter_of[byte] = stands_for_itself(byte) ? static_cast<char16_t>(byte) : next++;
      byte_of[letter_of[byte]] = static_cast<std::int16_t>(byte);
    }
  }
};
constexpr alphabet letters;

}  // namespace

std::optional<std::string> bytes_of_name(std::string_view name) {
  std::string bytes;
  while (!name.empty()) {
    const auto step = read_utf8(name);
    if (step.what != utf8_step::kind::valid || step.code_point >= letters.byte_of.size()) return {};
    const auto byte = letters.byte_of[step.code_point];
    if (byte == alphabet::none) return {};
    bytes.push_back(static_cast<char>(byte));
    name.remove_prefix(step.size);
  }
  return bytes;
}

std::string name_of_bytes(std::string_view bytes) {
  std::string name;
  for (const char byte : bytes)
    append_utf8(name, letters.letter_of[static_cast<unsigned char>(byte)]);
  return name;
}

}  // namespace deepinfer
