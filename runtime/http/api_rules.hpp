/// What the API reads from a request's header and query, and what it says about who may read the
/// answer. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/http/http_server.hpp"

namespace deepinfer {

/// JSON or not said. Error: unsupported_media_type.
result<void> check_content_type(const http_request& request);

/// No coding or `identity`: none is undone. Error: unsupported_media_type.
result<void> check_content_encoding(const http_request& request);

/// What the client calls its request: X-Request-Id of at most 128 printable characters, else "".
std::string client_request_id_of(const http_request& request);

/// A well-formed W3C traceparent, else "".
std::string traceparent_of(const http_request& request);

/// Parameter `name` of a query as a whole number. Error: invalid_argument with `param`.
result<std::int64_t> query_number(std::string_view query, std::string_view name,
                                  std::int64_t otherwise, std::int64_t least, std::int64_t most);

/// Names of ignored fields for a header: at most 20 of them, printable.
std::string header_list(const std::vector<std::string>& names);

/// Headers that let pages of `origins` ("*": all) read the answer; none where the request comes
/// from no page or from another one.
std::vector<http_header> cors_headers(const http_request& request,
                                      const std::vector<std::string>& origins);

/// The answer to OPTIONS on a path that allows `methods`.
http_response options_response(const http_request& request, const std::string& methods);

}  // namespace deepinfer
