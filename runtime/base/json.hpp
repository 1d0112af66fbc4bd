/// JSON: the one place that names the library. `json::value`, `json::object` (keeps the order of
/// its keys), `json::array`, `json::string`; `parse_json` turns every defect into an error with
/// its place.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "runtime/base/error.hpp"

namespace deepinfer {

namespace json = boost::json;

/// Strict RFC 8259. Doubles are the nearest ones, -0 is a double, a number beyond double is an
/// error. Errors: invalid_json (line and column), json_too_deep.
result<json::value> parse_json(std::string_view text, std::size_t max_depth = 64);

/// Reads and parses a file; errors start with the path.
result<json::value> read_json_file(const std::string& path, std::size_t max_depth = 64);

/// The first key that an object of `text` holds twice, as a path ("a.b"), or "" if there is none:
/// `parse_json` keeps the last of them. `text` must be JSON that `parse_json` accepted.
std::string repeated_key(std::string_view text);

/// Compact form, non-ASCII kept, doubles as 1.0 or 2.5e-07.
std::string to_text(const json::value& value);

}  // namespace deepinfer
