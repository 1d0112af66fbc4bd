#include "runtime/http/json_text.hpp"

#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "runtime/base/utf8.hpp"

namespace deepinfer {
namespace {

constexpr float least_logprob = -9999.0f;

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
    const auto part = read_utf8(text.substr(at));
    if (part.what == utf8_step::kind::valid)
      out.append(text, at, part.size);
    else
      out += replacement_character;
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
    const auto part = read_utf8(text.substr(at));
    if (part.what != utf8_step::kind::valid) return at;
    at += part.size;
  }
  return std::nullopt;
}

}  // namespace deepinfer
