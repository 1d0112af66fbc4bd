#include "runtime/http/json_text.hpp"

#include <cmath>
#include <cstdint>

#include <fmt/format.h>

namespace deepinfer {
namespace {

constexpr float least_logprob = -9999.0f;

struct utf8_part {
  std::size_t size = 1;
  bool is_valid = false;
};

bool is_between(std::string_view text, std::size_t at, unsigned least, unsigned most) {
  if (at >= text.size()) return false;
  const auto byte = static_cast<unsigned char>(text[at]);
  return byte >= least && byte <= most;
}

/// What begins at `at`: a character, or the longest part that could have become one (Unicode 3.9,
/// table 3-7: the second byte's range depends on the first).
utf8_part utf8_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const std::size_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  unsigned least = 0x80;
  unsigned most = 0xBF;
  if (first == 0xE0) least = 0xA0;
  if (first == 0xED) most = 0x9F;
  if (first == 0xF0) least = 0x90;
  if (first == 0xF4) most = 0x8F;
  if (!is_between(text, at + 1, least, most)) return {1, false};
  for (std::size_t i = 2; i < size; ++i)
    if (!is_between(text, at + i, 0x80, 0xBF)) return {i, false};
  return {size, true};
}

/// Printable ASCII that JSON needs no escape for.
bool is_plain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

void append_escaped(std::string& out, char c) {
  switch (c) {
  case '"': out += "\\\""; return;
  case '\\': out += "\\\\"; return;
  case '\n': out += "\\n"; return;
  case '\r': out += "\\r"; return;
  case '\t': out += "\\t"; return;
  default: fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c) & 0xFFu);
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    auto end = at;
    while (end < text.size() && is_plain(text[end])) ++end;
    out.append(text, at, end - at);
    at = end;
    if (at == text.size()) break;
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      append_escaped(out, text[at++]);
      continue;
    }
    const auto part = utf8_at(text, at);
    if (part.is_valid)
      out.append(text, at, part.size);
    else
      out += "\xEF\xBF\xBD";
    at += part.size;
  }
  out += '"';
}

void append_json_number(std::string& out, float value) {
  if (!std::isfinite(value)) value = least_logprob;
  fmt::format_to(std::back_inserter(out), "{}", value);
}

void append_json_number(std::string& out, double value) {
  if (!std::isfinite(value)) value = least_logprob;
  fmt::format_to(std::back_inserter(out), "{}", value);
}

std::optional<std::size_t> utf8_defect(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto part = utf8_at(text, at);
    if (!part.is_valid) return at;
    at += part.size;
  }
  return std::nullopt;
}

}  // namespace deepinfer
