#include "runtime/base/json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include <boost/json/basic_parser_impl.hpp>
#include <fmt/format.h>

#include "runtime/base/file.hpp"

namespace deepinfer {
namespace {

/// Builds the value like the library's own handler, except for numbers: its conversion is off by a
/// unit in the last place for every fourth double, loses the sign of -0 and makes 1e400 infinite.
struct value_builder {
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();
  using code = boost::system::error_code;

  json::value_stack stack;
  std::string number;  // the digits of a number that came in parts

  bool on_document_begin(code&) {
    stack.reset();
    return true;
  }
  bool on_document_end(code&) { return true; }
  bool on_array_begin(code&) { return true; }
  bool on_array_end(std::size_t count, code&) {
    stack.push_array(count);
    return true;
  }
  bool on_object_begin(code&) { return true; }
  bool on_object_end(std::size_t count, code&) {
    stack.push_object(count);
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, code&) {
    stack.push_chars(part);
    return true;
  }
  bool on_key(json::string_view part, std::size_t, code&) {
    stack.push_key(part);
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, code&) {
    stack.push_chars(part);
    return true;
  }
  bool on_string(json::string_view part, std::size_t, code&) {
    stack.push_string(part);
    return true;
  }
  bool on_number_part(json::string_view part, code&) {
    number.append(part.data(), part.size());
    return true;
  }
  bool on_int64(std::int64_t value, json::string_view last, code&) {
    const auto digits = whole_number(last);
    if (value == 0 && digits.front() == '-') {
      stack.push_double(-0.0);
    } else {
      stack.push_int64(value);
    }
    return true;
  }
  bool on_uint64(std::uint64_t value, json::string_view last, code&) {
    whole_number(last);
    stack.push_uint64(value);
    return true;
  }
  bool on_double(double estimate, json::string_view last, code& ec) {
    const auto digits = whole_number(last);
    double exact = 0.0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), exact);
    if (read.ec == std::errc::result_out_of_range) {
      if (std::abs(estimate) > 1.0) {
        ec = json::make_error_code(json::error::exponent_overflow);
        return false;
      }
      exact = digits.front() == '-' ? -0.0 : 0.0;
    }
    stack.push_double(exact);
    return true;
  }
  bool on_bool(bool value, code&) {
    stack.push_bool(value);
    return true;
  }
  bool on_null(code&) {
    stack.push_null();
    return true;
  }
  bool on_comment_part(json::string_view, code&) { return true; }
  bool on_comment(json::string_view, code&) { return true; }

  std::string whole_number(json::string_view last) {
    number.append(last.data(), last.size());
    return std::exchange(number, {});
  }
};

/// One past the closing quote of the string that begins at `at`, in JSON known to be valid.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

/// The characters a quoted string stands for: two spellings of a key are one key.
std::string unquoted(std::string_view quoted) {
  if (quoted.find('\\') == std::string_view::npos)
    return std::string(quoted.substr(1, quoted.size() - 2));
  const auto value = parse_json(quoted);
  return value && value->is_string() ? std::string(value->get_string()) : std::string(quoted);
}

/// Keys of an open object so far; an array has none.
struct open_value {
  std::set<std::string, std::less<>> keys;
  std::string newest;
};

/// The shortest text that reads as the same double, and as a double; the library's own writes one
/// as 1E0. JSON has no infinity.
void append_double(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  const auto text = fmt::format("{}", value);
  out += text;
  if (text.find_first_of(".e") == std::string::npos) out += ".0";
}

void append_text(std::string& out, const json::value& value) {
  if (value.is_double()) return append_double(out, value.get_double());
  char separator = 0;
  const auto separate = [&](char begin) {
    out += std::exchange(separator, ',') == 0 ? begin : ',';
  };
  if (const auto* list = value.if_array()) {
    if (list->empty()) out += '[';
    for (const auto& item : *list) {
      separate('[');
      append_text(out, item);
    }
    out += ']';
  } else if (const auto* object = value.if_object()) {
    if (object->empty()) out += '{';
    for (const auto& [key, item] : *object) {
      separate('{');
      out += json::serialize(key);
      out += ':';
      append_text(out, item);
    }
    out += '}';
  } else {
    out += json::serialize(value);
  }
}

std::string path_of(const std::vector<open_value>& levels) {
  std::string path;
  for (const auto& level : levels)
    if (!level.keys.empty()) path += (path.empty() ? "" : ".") + level.newest;
  return path;
}

}  // namespace

std::string repeated_key(std::string_view text) {
  std::vector<open_value> levels(1);
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '{' || c == '[') levels.emplace_back();
    if ((c == '}' || c == ']') && levels.size() > 1) levels.pop_back();
    if (c != '"') {
      ++at;
      continue;
    }
    const auto end = end_of_string(text, at);
    const auto after = text.find_first_not_of(" \t\r\n", end);
    if (after != std::string_view::npos && text[after] == ':') {
      levels.back().newest = unquoted(text.substr(at, end - at));
      if (!levels.back().keys.insert(levels.back().newest).second) return path_of(levels);
      at = after;
    } else {
      at = end;
    }
  }
  return {};
}

result<json::value> parse_json(std::string_view text, std::size_t max_depth) {
  json::parse_options options;
  options.max_depth = max_depth;
  boost::system::error_code code;
  json::basic_parser<value_builder> parser(options);
  const auto used = parser.write_some(false, text.data(), text.size(), code);
  if (!code && text.find_first_not_of(" \t\r\n", used) != std::string_view::npos)
    code = json::error::extra_data;
  if (!code) return parser.handler().stack.release();
  const auto place = std::min(used, text.size());
  const auto before = text.substr(0, place);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto line_start = before.rfind('\n');
  const auto column = 1 + (line_start == std::string_view::npos ? place : place - line_start - 1);
  const auto is_depth = code == json::make_error_code(json::error::too_deep);
  return fail(
    is_depth ? errc::json_too_deep : errc::invalid_json,
    fmt::format("line {} column {}: {}", line, column,
                is_depth ? fmt::format("nested deeper than {}", max_depth) : code.message()));
}

result<json::value> read_json_file(const std::string& path, std::size_t max_depth) {
  DI_TRY(const std::string text, read_file(path));
  DI_TRY(auto value, parse_json(text, max_depth), path);
  return value;
}

std::string to_text(const json::value& value) {
  std::string out;
  append_text(out, value);
  return out;
}

}  // namespace deepinfer
