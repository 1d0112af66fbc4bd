/// How the fields of a described struct become those of its Protobuf message, and come back.
///
/// `write` and `read` walk the fields that `describe()` names; one `put` and one `take` per type of
/// field do the rest through Protobuf's reflection. Private to messages/: the rest of the house
/// uses wire.hpp. A struct always travels as the same kind of message.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <google/protobuf/message.h>

#include "messages/control.hpp"
#include "messages/describe.hpp"
#include "messages/request.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer::wire_fields {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

bool is_utf8(const std::string& text);

/// Protobuf strings are UTF-8; whatever else a message quotes is shown as question marks.
std::string as_utf8(std::string text);

/// The code of a name; `internal` for one of a newer sender.
errc code_named(std::string_view name);

void put(Message& m, const FieldDescriptor& f, bool v);
void put(Message& m, const FieldDescriptor& f, std::int32_t v);
void put(Message& m, const FieldDescriptor& f, std::uint32_t v);
void put(Message& m, const FieldDescriptor& f, std::int64_t v);
void put(Message& m, const FieldDescriptor& f, std::uint64_t v);
void put(Message& m, const FieldDescriptor& f, float v);
void put(Message& m, const FieldDescriptor& f, double v);
void put(Message& m, const FieldDescriptor& f, const std::string& v);
void put(Message& m, const FieldDescriptor& f, seq_id v);
void put(Message& m, const FieldDescriptor& f, finish_reason v);
void put(Message& m, const FieldDescriptor& f, health_state v);
void put(Message& m, const FieldDescriptor& f, errc v);

void take(const Message& m, const FieldDescriptor& f, bool& v);
void take(const Message& m, const FieldDescriptor& f, std::int32_t& v);
void take(const Message& m, const FieldDescriptor& f, std::uint32_t& v);
void take(const Message& m, const FieldDescriptor& f, std::int64_t& v);
void take(const Message& m, const FieldDescriptor& f, std::uint64_t& v);
void take(const Message& m, const FieldDescriptor& f, float& v);
void take(const Message& m, const FieldDescriptor& f, double& v);
void take(const Message& m, const FieldDescriptor& f, std::string& v);
void take(const Message& m, const FieldDescriptor& f, seq_id& v);
void take(const Message& m, const FieldDescriptor& f, finish_reason& v);
void take(const Message& m, const FieldDescriptor& f, health_state& v);
void take(const Message& m, const FieldDescriptor& f, errc& v);

using biases = std::vector<std::pair<token_id, float>>;
void put(Message& m, const FieldDescriptor& f, const biases& list);
void take(const Message& m, const FieldDescriptor& f, biases& list);

using prompt_ids = std::optional<std::vector<token_id>>;
void put(Message& m, const FieldDescriptor& f, const prompt_ids& ids);
void take(const Message& m, const FieldDescriptor& f, prompt_ids& ids);

template <described T>
void write(Message& m, const T& object);
template <described T>
void read(const Message& m, T& object);

template <described T>
void put(Message& m, const FieldDescriptor& f, const T& v) {
  write(*m.GetReflection()->MutableMessage(&m, &f), v);
}
template <described T>
void take(const Message& m, const FieldDescriptor& f, T& v) {
  read(m.GetReflection()->GetMessage(m, &f), v);
}

template <class T>
void put(Message& m, const FieldDescriptor& f, const std::optional<T>& v) {
  if (v) put(m, f, *v);
}
template <class T>
void take(const Message& m, const FieldDescriptor& f, std::optional<T>& v) {
  take(m, f, v.emplace());
}

template <class T>
void put(Message& m, const FieldDescriptor& f, const std::vector<T>& list) {
  const auto& r = *m.GetReflection();
  for (const auto& v : list) {
    if constexpr (std::same_as<T, std::int32_t>)
      r.AddInt32(&m, &f, v);
    else if constexpr (std::same_as<T, float>)
      r.AddFloat(&m, &f, v);
    else if constexpr (std::same_as<T, std::string>)
      r.AddString(&m, &f, f.type() == FieldDescriptor::TYPE_STRING ? as_utf8(v) : v);
    else
      write(*r.AddMessage(&m, &f), v);
  }
}
template <class T>
void take(const Message& m, const FieldDescriptor& f, std::vector<T>& list) {
  const auto& r = *m.GetReflection();
  for (int i = 0; i < r.FieldSize(m, &f); ++i) {
    if constexpr (std::same_as<T, std::int32_t>)
      list.push_back(r.GetRepeatedInt32(m, &f, i));
    else if constexpr (std::same_as<T, float>)
      list.push_back(r.GetRepeatedFloat(m, &f, i));
    else if constexpr (std::same_as<T, std::string>)
      list.push_back(r.GetRepeatedString(m, &f, i));
    else
      read(r.GetRepeatedMessage(m, &f, i), list.emplace_back());
  }
}

/// The field of that name, which must exist.
const FieldDescriptor& field_named(const Message& m, std::string_view name);

/// The message's fields in the order of `describe()`, looked up once per struct: chunks are many.
template <described T>
const auto& fields_of(const Message& m) {
  constexpr auto count = std::tuple_size_v<decltype(T::describe())>;
  static const auto found = [&m] {
    std::array<const FieldDescriptor*, count> out{};
    std::size_t at = 0;
    const T object{};
    for_each_field(object,
                   [&](std::string_view name, const auto&) { out[at++] = &field_named(m, name); });
    return out;
  }();
  return found;
}

template <described T>
void write(Message& m, const T& object) {
  auto at = fields_of<T>(m).begin();
  for_each_field(object, [&](std::string_view, const auto& value) { put(m, **at++, value); });
}

template <described T>
void read(const Message& m, T& object) {
  auto at = fields_of<T>(m).begin();
  for_each_field(object, [&](std::string_view, auto& value) {
    const auto& f = **at++;
    // Absent: the struct's default stays.
    if (f.has_presence() && !m.GetReflection()->HasField(m, &f)) return;
    take(m, f, value);
  });
}

template <class Wire>
result<Wire> parse(std::string_view bytes) {
  Wire m;
  const google::protobuf::LogSilencer quiet;  // the error says it, the library need not
  if (!m.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return fail(errc::invalid_argument, fmt::format("{} bytes that are not a {} message",
                                                    bytes.size(), Wire::descriptor()->name()));
  return m;
}

template <class Wire, described T>
result<T> object_of(std::string_view bytes) {
  DI_TRY(const Wire m, parse<Wire>(bytes));
  T object;
  read(m, object);
  return object;
}

}  // namespace deepinfer::wire_fields
