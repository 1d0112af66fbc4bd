#include "actors/request_input.hpp"

#include <fmt/format.h>

#include "runtime/base/utf8.hpp"

namespace deepinfer {

result<void> check_input(const generate_request& request) {
  const int inputs =
    int{request.text.has_value()} + int{request.ids.has_value()} + int{request.chat.has_value()};
  if (inputs != 1)
    return fail(
      errc::invalid_argument,
      fmt::format("input: {} of text, ids and chat are set, exactly one is needed", inputs),
      "input");
  if (request.chat && !is_utf8(*request.chat))
    return fail(errc::invalid_utf8, "chat: found bytes that are not UTF-8", "chat");
  return {};
}

}  // namespace deepinfer
