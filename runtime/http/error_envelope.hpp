/// Errors as HTTP answers: one envelope for all of them, {"error":{message, type, param, code}},
/// at most 4 KB, with the headers by which clients decide whether to try again.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/http/http_server.hpp"

namespace deepinfer {

/// The API's class of an error, e.g. "invalid_request_error".
std::string_view type_of(errc code);

/// {"error":{...}}, one line.
std::string error_json(const error& why);

/// The whole answer. Retry-After where waiting helps, x-should-retry where it can be told.
http_response error_response(const error& why);

}  // namespace deepinfer
