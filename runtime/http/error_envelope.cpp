#include "runtime/http/error_envelope.hpp"

#include "runtime/base/quoted.hpp"
#include "runtime/http/json_text.hpp"

namespace deepinfer {
namespace {

// Escapes make text at most three times as long once control characters are gone: under 4 KB.
constexpr std::size_t longest_message = 1100;
constexpr std::size_t longest_param = 100;

/// Whole seconds after which another try may succeed; 0: no promise.
int retry_after_of(errc code) {
  switch (code) {
  case errc::rate_limited:
  case errc::queue_full:
  case errc::overloaded: return 1;
  case errc::rank_lost: return 2;
  case errc::not_ready:
  case errc::draining:
  case errc::server_shutdown: return 5;
  default: return 0;
  }
}

}  // namespace

std::string_view type_of(errc code) {
  switch (code) {
  case errc::unauthenticated: return "authentication_error";
  case errc::model_not_found:
  case errc::not_found: return "not_found_error";
  case errc::request_timeout:
  case errc::slow_consumer:
  case errc::deadline_exceeded: return "timeout_error";
  case errc::rate_limited:
  case errc::queue_full: return "rate_limit_error";
  case errc::cancelled: return "cancelled_error";
  case errc::rank_lost:
  case errc::not_ready:
  case errc::draining:
  case errc::overloaded:
  case errc::server_shutdown: return "service_unavailable_error";
  default: return http_status_of(code) < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string error_json(const error& why) {
  std::string out = R"({"error":{"message":)";
  append_json_string(out, one_line(why.message, longest_message));
  out += R"(,"type":")";
  out += type_of(why.code);
  out += R"(","param":)";
  if (why.param.empty())
    out += "null";
  else
    append_json_string(out, one_line(why.param, longest_param));
  out += R"(,"code":")";
  out += name_of(why.code);
  out += R"("}})";
  return out;
}

http_response error_response(const error& why) {
  http_response out;
  out.status = http_status_of(why.code);
  out.headers = {{"Content-Type", "application/json"}};
  if (const auto seconds = retry_after_of(why.code); seconds > 0) {
    out.headers.push_back({"Retry-After", std::to_string(seconds)});
    out.headers.push_back({"x-should-retry", "true"});
  } else if (out.status < 500 && why.code != errc::request_timeout) {
    out.headers.push_back({"x-should-retry", "false"});
  }
  if (why.code == errc::unauthenticated) out.headers.push_back({"WWW-Authenticate", "Bearer"});
  out.body = error_json(why);
  return out;
}

}  // namespace deepinfer
