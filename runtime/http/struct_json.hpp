/// Structs that state their fields (messages/describe.hpp) as JSON objects, for people and tools.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "messages/control.hpp"
#include "messages/describe.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

inline json::value json_of(bool value) {
  return value;
}
inline json::value json_of(const std::string& value) {
  return json::value(json::string(value));
}
inline json::value json_of(health_state value) {
  return json::value(json::string(name_of(value)));
}

template <class T>
requires std::is_arithmetic_v<T> json::value json_of(T value) {
  return json::value(value);
}

template <described T>
json::value json_of(const T& value);

template <class T>
json::value json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : json::value();
}

template <class T>
json::value json_of(const std::vector<T>& list) {
  json::array out;
  for (const auto& item : list) out.push_back(json_of(item));
  return out;
}

template <described T>
json::value json_of(const T& value) {
  json::object out;
  for_each_field(value,
                 [&out](std::string_view name, const auto& field) { out[name] = json_of(field); });
  return out;
}

}  // namespace deepinfer
