#include "runtime/http/request_rules.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "runtime/http/header_text.hpp"

namespace deepinfer {
namespace {

using tl::unexpected;

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool any_has_token(const http_request& request, std::string_view name, std::string_view token) {
  return std::any_of(request.headers.begin(), request.headers.end(), [&](const http_header& line) {
    return equal_ignoring_case(line.name, name) && has_token(line.value, token);
  });
}

/// Nothing: the length of the body is clear.
tl::expected<void, http_refusal> check_length(const http_request& request, bool is_http_10) {
  const auto lengths = request.count("Content-Length");
  const auto codings = request.count("Transfer-Encoding");
  if (lengths > 0 && codings > 0)
    return unexpected(
      refusal_of(errc::invalid_argument, "request has both Content-Length and Transfer-Encoding"));
  if (lengths > 1)
    return unexpected(refusal_of(errc::invalid_argument,
                                 fmt::format("request has {} Content-Length headers", lengths)));
  if (lengths == 1 && !is_number(*request.header("Content-Length")))
    return unexpected(refusal_of(errc::invalid_argument, "Content-Length: expected a number"));
  if (codings == 0) return {};
  if (is_http_10)
    return unexpected(
      refusal_of(errc::invalid_argument, "Transfer-Encoding is not known to HTTP/1.0"));
  if (codings > 1 || !equal_ignoring_case(*request.header("Transfer-Encoding"), "chunked"))
    return unexpected(refusal_of(501, errc::invalid_argument,
                                 "Transfer-Encoding: expected chunked and nothing else"));
  return {};
}

}  // namespace

http_refusal refusal_of(errc code, std::string message) {
  return refusal_of(http_status_of(code), code, std::move(message));
}

http_refusal refusal_of(int status, errc code, std::string message) {
  return {status, {code, std::move(message), {}}};
}

tl::expected<request_form, http_refusal> form_of(const http_request& request, bool is_http_10,
                                                 std::uint64_t content_length,
                                                 const http_server_options& limits) {
  if (const auto hosts = request.count("Host"); hosts > 1 || (hosts == 0 && !is_http_10))
    return unexpected(refusal_of(errc::invalid_argument,
                                 fmt::format("request has {} Host headers, expected one", hosts)));
  if (auto length = check_length(request, is_http_10); !length)
    return unexpected(std::move(length).error());
  if (content_length > limits.max_body_bytes)
    return unexpected(refusal_of(
      errc::payload_too_large, fmt::format("body: Content-Length is {} bytes, at most {} are read",
                                           content_length, limits.max_body_bytes)));
  request_form form;
  form.is_http_10 = is_http_10;
  form.is_head = request.method == "HEAD";
  form.keep_alive = is_http_10 ? any_has_token(request, "Connection", "keep-alive")
                               : !any_has_token(request, "Connection", "close");
  form.has_body = content_length > 0 || request.count("Transfer-Encoding") > 0;
  // HTTP/1.0 does not know the header; a proxy may have left it there.
  if (const auto* expect = request.header("Expect"); expect != nullptr && !is_http_10) {
    if (!equal_ignoring_case(*expect, "100-continue"))
      return unexpected(
        refusal_of(417, errc::invalid_argument, "Expect: only 100-continue is known"));
    form.wants_continue = form.has_body;
  }
  return form;
}

}  // namespace deepinfer
