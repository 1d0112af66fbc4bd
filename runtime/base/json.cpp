#include "runtime/base/json.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/base/file.hpp"

namespace deepinfer {

result<json::value> parse_json(std::string_view text, std::size_t max_depth) {
  json::parse_options options;
  options.max_depth = max_depth;
  boost::system::error_code code;
  json::stream_parser parser({}, options);
  const auto used = parser.write_some(text.data(), text.size(), code);
  if (!code) {
    const auto rest = text.find_first_not_of(" \t\r\n", used);
    if (rest != std::string_view::npos) {
      code = json::error::extra_data;
    } else {
      parser.finish(code);
    }
  }
  if (!code) return parser.release();
  const auto place = std::min(used, text.size());
  const auto before = text.substr(0, place);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto line_start = before.rfind('\n');
  const auto column = 1 + (line_start == std::string_view::npos ? place : place - line_start - 1);
  const auto is_depth = code == json::make_error_code(json::error::too_deep);
  return fail(is_depth ? errc::json_too_deep : errc::invalid_json,
              fmt::format("line {} column {}: {}", line, column,
                          is_depth ? fmt::format("nested deeper than {}", max_depth) : code.message()));
}

result<json::value> read_json_file(const std::string& path, std::size_t max_depth) {
  DI_TRY(const std::string text, read_file(path));
  DI_TRY(auto value, parse_json(text, max_depth), path);
  return value;
}

std::string to_text(const json::value& value) {
  return json::serialize(value);
}

}  // namespace deepinfer
