/// A struct states its fields once; equality, the wire form and dumps follow from that.
///
///   struct point {
///     int x = 0, y = 0;
///     static constexpr auto describe() {
///       return fields(field{"x", &point::x}, field{"y", &point::y});
///     }
///   };
///   for_each_field(p, [](std::string_view name, auto& value) { ... });
///
/// Names are those of the Protobuf message that carries the struct (messages/wire.cpp).
#pragma once

#include <string_view>
#include <tuple>
#include <type_traits>

namespace deepinfer {

template <class Struct, class Value>
struct field {
  std::string_view name;
  Value Struct::*member;
};

template <class Struct, class Value>
field(const char*, Value Struct::*) -> field<Struct, Value>;

template <class... Fields>
constexpr std::tuple<Fields...> fields(Fields... list) {
  return {list...};
}

template <class T>
concept described = requires {
  std::remove_cv_t<T>::describe();
};

/// Calls visit(name, value) for each field, in the order of `describe`.
template <described T, class Visit>
constexpr void for_each_field(T& object, Visit&& visit) {
  std::apply([&](const auto&... f) { (visit(f.name, object.*(f.member)), ...); },
             std::remove_cv_t<T>::describe());
}

/// Field by field equality; every field's type must have ==.
template <described T>
constexpr bool same_fields(const T& a, const T& b) {
  return std::apply([&](const auto&... f) { return ((a.*(f.member) == b.*(f.member)) && ...); },
                    T::describe());
}

template <described T>
constexpr bool operator==(const T& a, const T& b) {
  return same_fields(a, b);
}

}  // namespace deepinfer
