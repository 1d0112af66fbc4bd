/// A struct sent and read back, whole and one field at a time.
#pragma once

#include <doctest/doctest.h>

#include "messages/wire.hpp"

namespace deepinfer::test {

template <class T>
void check_back(const T& sent) {
  const auto back = from_wire<T>(to_wire(sent));
  REQUIRE_MESSAGE(back, back.error().message);
  CHECK(*back == sent);
}

/// The fields of `full` one at a time: none may leak into another or hide behind a default. Gives
/// their number.
template <class T>
std::size_t check_one_at_a_time(const T& full) {
  std::size_t fields_seen = 0;
  for_each_field(full, [&](std::string_view name, const auto& value) {
    CAPTURE(name);
    T one;
    for_each_field(one, [&](std::string_view other, auto& target) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::decay_t<decltype(target)>>)
        if (other == name) target = value;
    });
    CHECK(!(one == T{}));
    check_back(one);
    ++fields_seen;
  });
  return fields_seen;
}

}  // namespace deepinfer::test
