#include "runtime/text/python_json.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/check.hpp"

namespace deepinfer {
namespace {

void append_string(std::string_view text, std::string& out) {
  out += '"';
  append_json_escaped(text, out);
  out += '"';
}

void append_value(const json::value& value, json_numbers numbers, std::string& out) {
  switch (value.kind()) {
  case json::kind::null: out += "null"; return;
  case json::kind::bool_: out += value.get_bool() ? "true" : "false"; return;
  case json::kind::int64: out += fmt::format("{}", value.get_int64()); return;
  case json::kind::uint64: out += fmt::format("{}", value.get_uint64()); return;
  case json::kind::double_: append_json_double(value.get_double(), numbers, out); return;
  case json::kind::string: append_string(value.get_string(), out); return;
  case json::kind::array: {
    out += '[';
    bool first = true;
    for (const auto& item : value.get_array()) {
      if (!std::exchange(first, false)) out += ", ";
      append_value(item, numbers, out);
    }
    out += ']';
    return;
  }
  case json::kind::object: {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : value.get_object()) {
      if (!std::exchange(first, false)) out += ", ";
      append_string(key, out);
      out += ": ";
      append_value(item, numbers, out);
    }
    out += '}';
    return;
  }
  }
}

}  // namespace

void append_json_escaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    switch (c) {
    case '"': out += "\\\""; break;
    case '\\': out += "\\\\"; break;
    case '\b': out += "\\b"; break;
    case '\f': out += "\\f"; break;
    case '\n': out += "\\n"; break;
    case '\r': out += "\\r"; break;
    case '\t': out += "\\t"; break;
    default:
      if (static_cast<unsigned char>(c) < 0x20) {
        out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      } else {
        out += c;
      }
    }
  }
}

void append_json_double(double number, json_numbers numbers, std::string& out) {
  DI_CHECK(std::isfinite(number), "JSON holds no {}", number);
  std::array<char, 32> buffer{};
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::abs(number),
                                     std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<std::size_t>(written.ptr - buffer.data()));
  const auto mark = text.find('e');
  int exponent = 0;
  const auto exponent_begin = mark + (text[mark + 1] == '+' ? 2 : 1);
  std::from_chars(text.data() + exponent_begin, text.data() + text.size(), exponent);
  std::string digits(1, text.front());
  if (mark > 2) digits += text.substr(2, mark - 2);
  const auto count = static_cast<int>(digits.size());
  if (std::signbit(number)) out += '-';
  const bool python = numbers == json_numbers::python;
  if (exponent < (python ? -4 : -5) || exponent >= 16) {
    out += digits.front();
    if (count > 1) out.append(".").append(digits, 1);
    out += fmt::format("e{}{:0{}}", exponent < 0 ? '-' : '+', std::abs(exponent), python ? 2 : 1);
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
  } else if (count <= exponent + 1) {
    out.append(digits).append(static_cast<std::size_t>(exponent + 1 - count), '0').append(".0");
  } else {
    const auto whole = static_cast<std::size_t>(exponent + 1);
    out.append(digits, 0, whole).append(".").append(digits, whole);
  }
}

json_numbers json_numbers_of(chat_variant variant) {
  return variant == chat_variant::v41 ? json_numbers::python : json_numbers::plain;
}

std::string python_json(const json::value& value, json_numbers numbers) {
  std::string out;
  append_value(value, numbers, out);
  return out;
}

}  // namespace deepinfer
