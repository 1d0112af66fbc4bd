#include "runtime/http/http_service.hpp"

#include <chrono>
#include <exception>
#include <utility>

#include "runtime/base/log.hpp"
#include "runtime/http/header_text.hpp"

namespace deepinfer {

bool run_guarded(std::string_view what, const std::function<void()>& call) {
  try {
    call();
    return true;
  } catch (const std::exception& thrown) {
    log(severity::error, "http: {} has thrown: {}", what, thrown.what());
  } catch (...) {
    log(severity::error, "http: {} has thrown", what);
  }
  return false;
}

http_service::http_service(http_server_options with, http_handler calls)
  : options(std::move(with)),
    handler(std::move(calls)) {
  options.server_name = clean_header_value(options.server_name);
}

http_response http_service::refuse(const http_refusal& why) {
  counts.refused.fetch_add(1, std::memory_order_relaxed);
  http_response answer;
  if (!options.refuse || !run_guarded("refuse", [&] { answer = options.refuse(why.why); }))
    answer = {0, {{"Content-Type", "text/plain; charset=utf-8"}}, why.why.message + "\n"};
  answer.status = why.status;
  return answer;
}

result<void> http_service::admit(const http_request& request) const {
  result<void> allowed;
  if (options.admit && !run_guarded("admit", [&] { allowed = options.admit(request); }))
    allowed = fail(errc::internal, "the request could not be checked");
  return allowed;
}

const std::string& http_service::date() {
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count();
  if (std::exchange(date_second_, now) != now) date_ = http_date(now);
  return date_;
}

}  // namespace deepinfer
