/// Targets of requests: percent-decoding, the path and the query of a target, values of a query.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace deepinfer {

/// Error: invalid_argument where a % is not followed by two hexadecimal digits.
result<std::string> percent_decode(std::string_view text);

struct uri_target {
  std::string path;   ///< percent-decoded; "*" of OPTIONS stays
  std::string query;  ///< as sent, without the question mark
};

/// Takes the forms a server is sent: "/path?query", "http://host/path?query", "*".
result<uri_target> split_target(std::string_view target);

/// The first value of that name in a query (a=1&b=x+y), decoded where it can be; + is a blank.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

}  // namespace deepinfer
