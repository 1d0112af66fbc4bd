#include "actors/wire_protocol.hpp"

#include <algorithm>

#include "actors/client_state.hpp"
#include "messages/wire.hpp"

namespace deepinfer {

using namespace std::chrono_literals;

caf::error to_remote(const error& why) {
  return caf::make_error(caf::sec::runtime_error, to_wire(why));
}

error from_remote(const caf::error& why) {
  error out = from_caf(why);
  caf::message context = why.context();
  context.apply([&out](const std::string& bytes) {
    if (auto read = from_wire<error>(bytes)) out = std::move(*read);
  });
  return out;
}

std::chrono::milliseconds time_limit_of(std::string_view verb, const std::string& bytes) {
  if (verb != verb::drain) return control_time_limit;
  const auto asked = from_wire<number_call>(bytes);
  constexpr std::int64_t most_ms = 24 * 3'600'000;
  return std::chrono::milliseconds(asked ? std::clamp<std::int64_t>(asked->value, 0, most_ms) : 0) +
         control_time_limit;
}

}  // namespace deepinfer
