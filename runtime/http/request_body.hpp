/// The body of a request: UTF-8, JSON, an object.
#pragma once

#include <cstddef>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

/// A body of bytes as JSON. Errors: invalid_utf8 (the byte), invalid_json (the place),
/// json_too_deep, invalid_argument (no object).
result<json::value> parse_body(std::string_view body, std::size_t max_depth);

}  // namespace deepinfer
