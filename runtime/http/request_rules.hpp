/// What a request's header promises, and what it may not: the length of its body, the life of its
/// connection, the limits of the server.
///
/// Where two readers could see two different ends of a body, the request is refused, so that no
/// request can be hidden within another one.
#pragma once

#include <cstdint>

#include <tl/expected.hpp>

#include "runtime/base/error.hpp"
#include "runtime/http/http_server.hpp"

namespace deepinfer {

/// An answer without a handler: `status` may say more than the code of `why` does (431, 501, ...).
struct http_refusal {
  int status = 400;
  error why;
};

http_refusal refusal_of(errc code, std::string message);
http_refusal refusal_of(int status, errc code, std::string message);

/// How a request is read and its answer framed.
struct request_form {
  bool is_http_10 = false;
  bool is_head = false;
  bool keep_alive = true;       ///< the connection may serve another request
  bool wants_continue = false;  ///< the client waits for 100 before it sends the body
  bool has_body = false;
};

/// `is_http_10`: the version of the request line. `content_length`: of the parser, 0 for chunked.
tl::expected<request_form, http_refusal> form_of(const http_request& request, bool is_http_10,
                                                 std::uint64_t content_length,
                                                 const http_server_options& limits);

}  // namespace deepinfer
