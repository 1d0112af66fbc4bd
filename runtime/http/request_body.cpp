#include "runtime/http/request_body.hpp"

#include <fmt/format.h>

#include "runtime/base/json_fields.hpp"
#include "runtime/http/json_text.hpp"

namespace deepinfer {

result<json::value> parse_body(std::string_view body, std::size_t max_depth) {
  if (const auto at = utf8_defect(body))
    return fail(errc::invalid_utf8, fmt::format("the request body is not UTF-8 at byte {}", *at));
  DI_TRY(auto value, parse_json(body, max_depth), "request body");
  if (!value.is_object())
    return fail(errc::invalid_argument,
                fmt::format("request body: found {}, expected a JSON object", shown_value(value)));
  return value;
}

}  // namespace deepinfer
