#include "runtime/base/utf8.hpp"

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

/// What may follow a lead byte: sequence length and the range of the second byte.
struct lead {
  std::uint8_t size, second_min, second_max;
};

constexpr lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};  // continuation, or an overlong form
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // nothing above U+10FFFF
  return {0, 0, 0};
}

}  // namespace

utf8_step read_utf8(std::string_view text) {
  using kind = utf8_step::kind;
  if (text.empty()) return {};
  const auto first = static_cast<std::uint8_t>(text[0]);
  if (first < 0x80) return {kind::valid, 1, first};
  const auto [size, second_min, second_max] = lead_of(first);
  if (size == 0) return {kind::invalid, 1, 0};
  char32_t code_point = first & (0xFFu >> (size + 1u));
  for (std::uint8_t at = 1; at < size; ++at) {
    if (at == text.size()) return {kind::unfinished, at, 0};
    const auto byte = static_cast<std::uint8_t>(text[at]);
    if (byte < (at == 1 ? second_min : 0x80) || byte > (at == 1 ? second_max : 0xBF))
      return {kind::invalid, at, 0};
    code_point = (code_point << 6) | (byte & 0x3Fu);
  }
  return {kind::valid, size, code_point};
}

void append_utf8(std::string& text, char32_t code_point) {
  DI_CHECK(code_point < 0x110000 && (code_point < 0xD800 || code_point > 0xDFFF),
           "U+{:X} is no scalar value", static_cast<std::uint32_t>(code_point));
  const auto add = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    add(code_point);
  } else if (code_point < 0x800) {
    add(0xC0 | (code_point >> 6));
    add(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    add(0xE0 | (code_point >> 12));
    add(0x80 | ((code_point >> 6) & 0x3F));
    add(0x80 | (code_point & 0x3F));
  } else {
    add(0xF0 | (code_point >> 18));
    add(0x80 | ((code_point >> 12) & 0x3F));
    add(0x80 | ((code_point >> 6) & 0x3F));
    add(0x80 | (code_point & 0x3F));
  }
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto step = read_utf8(text);
    if (step.what != utf8_step::kind::valid) return false;
    text.remove_prefix(step.size);
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  utf8_stream stream;
  std::string repaired;
  repaired.reserve(text.size());
  stream.push_into(repaired, text);
  return repaired + stream.finish();
}

void utf8_stream::push_into(std::string& text, std::string_view bytes) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_ + std::string(bytes);
    bytes = joined;
    held_.clear();
  }
  while (!bytes.empty()) {
    const auto step = read_utf8(bytes);
    if (step.what == utf8_step::kind::unfinished) {
      held_ = bytes;
      return;
    }
    text +=
      step.what == utf8_step::kind::valid ? bytes.substr(0, step.size) : replacement_character;
    bytes.remove_prefix(step.size);
  }
}

std::string utf8_stream::finish() {
  if (held_.empty()) return {};
  held_.clear();
  return std::string(replacement_character);
}

}  // namespace deepinfer
