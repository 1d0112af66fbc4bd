#include "config/fields.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/nearest.hpp"
#include "config/units.hpp"
#include "messages/options.pb.h"

namespace deepinfer {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

namespace {

/// The setting of a value in a map is that of the map's field.
const v1::Setting& setting_of(const FieldDescriptor& field) {
  const auto* entry = field.containing_type();
  const bool is_map_value = entry->options().map_entry() && field.number() == 2;
  const auto* owner = is_map_value ? entry->containing_type() : nullptr;
  for (int i = 0; owner && i < owner->field_count(); ++i)
    if (owner->field(i)->message_type() == entry)
      return owner->field(i)->options().GetExtension(v1::setting);
  return field.options().GetExtension(v1::setting);
}

/// DEVICE_KIND_AUTO -> "auto": the enum's name in upper snake case is the prefix of its values.
std::string choice_name(const pb::EnumValueDescriptor& value) {
  std::string prefix;
  for (const char c : value.type()->name()) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_upper && !prefix.empty()) prefix += '_';
    prefix += is_upper ? c : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  }
  prefix += '_';
  auto name = value.name();
  if (name.starts_with(prefix)) name.erase(0, prefix.size());
  for (auto& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return name;
}

tl::unexpected<error> mismatch(const FieldDescriptor& field, std::string_view text) {
  return fail(errc::bad_config, text.empty()
                                  ? fmt::format("found nothing, expected {}", expectation_of(field))
                                  : fmt::format("found '{}', expected {}", text.substr(0, 100),
                                                expectation_of(field)));
}

template <class Number>
bool parse_number(std::string_view text, Number& out) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  return !text.empty() && code == std::errc() && end == text.data() + text.size();
}

/// What an integer field takes, both ends included.
struct integer_limits {
  std::int64_t low = 0;
  std::uint64_t high = 0;
};

template <class Integer>
integer_limits limits_within(const v1::Setting& setting) {
  using limits = std::numeric_limits<Integer>;
  return {setting.has_min() ? setting.min() : static_cast<std::int64_t>(limits::min()),
          setting.has_max() ? static_cast<std::uint64_t>(setting.max())
                            : static_cast<std::uint64_t>(limits::max())};
}

integer_limits limits_of(const FieldDescriptor& field) {
  const auto& setting = setting_of(field);
  switch (field.cpp_type()) {
  case FieldDescriptor::CPPTYPE_INT32: return limits_within<std::int32_t>(setting);
  case FieldDescriptor::CPPTYPE_UINT32: return limits_within<std::uint32_t>(setting);
  case FieldDescriptor::CPPTYPE_UINT64: return limits_within<std::uint64_t>(setting);
  default: return limits_within<std::int64_t>(setting);
  }
}

/// A setting's text is something, unless the schema says otherwise: an empty name or address means
/// nothing that anybody could want.
bool takes_empty(const FieldDescriptor& field) {
  return setting_of(field).may_be_empty();
}

bool parse_bool(std::string_view text, bool& out) {
  for (const std::string_view yes : {"true", "on", "yes", "1"})
    if (text == yes) return out = true, true;
  for (const std::string_view no : {"false", "off", "no", "0"})
    if (text == no) return out = false, true;
  return false;
}

/// Sets or appends, whatever the C++ type.
template <class Value>
void put(pb::Message& message, const FieldDescriptor& field, Value value,
         void (pb::Reflection::*set)(pb::Message*, const FieldDescriptor*, Value) const,
         void (pb::Reflection::*add)(pb::Message*, const FieldDescriptor*, Value) const) {
  const auto* reflection = message.GetReflection();
  (reflection->*(field.is_repeated() ? add : set))(&message, &field, std::move(value));
}

result<void> set_integer(pb::Message& message, const FieldDescriptor& field,
                         std::string_view text) {
  const auto& setting = setting_of(field);
  std::int64_t value = 0;
  if (setting.unit() == v1::UNIT_MILLISECONDS) {
    const auto parsed = parse_milliseconds(text);
    if (!parsed) return mismatch(field, text);
    value = *parsed;
  } else if (setting.unit() == v1::UNIT_MICROSECONDS) {
    const auto parsed = parse_microseconds(text);
    if (!parsed) return mismatch(field, text);
    value = *parsed;
  } else if (setting.unit() == v1::UNIT_BYTES) {
    const auto parsed = parse_bytes(text);
    if (!parsed) return mismatch(field, text);
    value = *parsed;
  } else if (!parse_number(text, value)) {
    return mismatch(field, text);
  }
  const auto [low, high] = limits_of(field);
  if (value < low || std::cmp_greater(value, high)) return mismatch(field, text);
  using R = pb::Reflection;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT32)
    put(message, field, static_cast<std::int32_t>(value), &R::SetInt32, &R::AddInt32);
  else
    put(message, field, value, &R::SetInt64, &R::AddInt64);
  return {};
}

result<void> set_unsigned(pb::Message& message, const FieldDescriptor& field,
                          std::string_view text) {
  std::uint64_t value = 0;
  const auto [low, high] = limits_of(field);
  if (!parse_number(text, value) || std::cmp_less(value, low) || value > high)
    return mismatch(field, text);
  using R = pb::Reflection;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32)
    put(message, field, static_cast<std::uint32_t>(value), &R::SetUInt32, &R::AddUInt32);
  else
    put(message, field, value, &R::SetUInt64, &R::AddUInt64);
  return {};
}

result<void> set_enum(pb::Message& message, const FieldDescriptor& field, std::string_view text) {
  const auto& type = *field.enum_type();
  std::string wanted(text);  // dashes are as good as underscores
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  for (int i = 0; i < type.value_count(); ++i) {
    const auto& value = *type.value(i);
    if (value.number() == 0 || choice_name(value) != wanted) continue;
    const auto& refused = value.options().GetExtension(v1::choice).refused();
    if (!refused.empty())
      return fail(type.name() == "DeviceKind" ? errc::no_device : errc::bad_config,
                  fmt::format("'{}': {}", text, refused));
    using R = pb::Reflection;
    put(message, field, value.number(), &R::SetEnumValue, &R::AddEnumValue);
    return {};
  }
  const auto choices = choices_of(field);
  auto wrong = mismatch(field, text);
  wrong.value().message += did_you_mean(text, choices);
  return wrong;
}

std::string scalar_text(const pb::Message& message, const FieldDescriptor& field, int i) {
  const auto& r = *message.GetReflection();
  const auto pick = [&](auto get, auto get_repeated) {
    return i < 0 ? (r.*get)(message, &field) : (r.*get_repeated)(message, &field, i);
  };
  using R = pb::Reflection;
  switch (field.cpp_type()) {
  case FieldDescriptor::CPPTYPE_INT32:
    return fmt::format("{}", pick(&R::GetInt32, &R::GetRepeatedInt32));
  case FieldDescriptor::CPPTYPE_INT64: {
    const auto value = pick(&R::GetInt64, &R::GetRepeatedInt64);
    const auto unit = setting_of(field).unit();
    if (unit == v1::UNIT_MILLISECONDS) return duration_text(value);
    if (unit == v1::UNIT_MICROSECONDS) return microseconds_text(value);
    return unit == v1::UNIT_BYTES ? size_text(value) : fmt::format("{}", value);
  }
  case FieldDescriptor::CPPTYPE_UINT32:
    return fmt::format("{}", pick(&R::GetUInt32, &R::GetRepeatedUInt32));
  case FieldDescriptor::CPPTYPE_UINT64:
    return fmt::format("{}", pick(&R::GetUInt64, &R::GetRepeatedUInt64));
  case FieldDescriptor::CPPTYPE_DOUBLE:
    return fmt::format("{}", pick(&R::GetDouble, &R::GetRepeatedDouble));
  case FieldDescriptor::CPPTYPE_FLOAT:
    return fmt::format("{}", pick(&R::GetFloat, &R::GetRepeatedFloat));
  case FieldDescriptor::CPPTYPE_BOOL:
    return pick(&R::GetBool, &R::GetRepeatedBool) ? "true" : "false";
  case FieldDescriptor::CPPTYPE_ENUM: return choice_name(*pick(&R::GetEnum, &R::GetRepeatedEnum));
  case FieldDescriptor::CPPTYPE_STRING:
    return yaml_string(pick(&R::GetString, &R::GetRepeatedString));
  case FieldDescriptor::CPPTYPE_MESSAGE: break;
  }
  return {};
}

}  // namespace

result<void> set_from_text(pb::Message& message, const FieldDescriptor& field,
                           std::string_view text) {
  using R = pb::Reflection;
  switch (field.cpp_type()) {
  case FieldDescriptor::CPPTYPE_INT32:
  case FieldDescriptor::CPPTYPE_INT64: return set_integer(message, field, text);
  case FieldDescriptor::CPPTYPE_ENUM: return set_enum(message, field, text);
  case FieldDescriptor::CPPTYPE_UINT32:
  case FieldDescriptor::CPPTYPE_UINT64: return set_unsigned(message, field, text);
  case FieldDescriptor::CPPTYPE_DOUBLE:
  case FieldDescriptor::CPPTYPE_FLOAT: {
    double value = 0;
    if (!parse_number(text, value) || !std::isfinite(value)) return mismatch(field, text);
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE)
      put(message, field, value, &R::SetDouble, &R::AddDouble);
    else
      put(message, field, static_cast<float>(value), &R::SetFloat, &R::AddFloat);
    return {};
  }
  case FieldDescriptor::CPPTYPE_BOOL: {
    bool value = false;
    if (!parse_bool(text, value)) return mismatch(field, text);
    return put(message, field, value, &R::SetBool, &R::AddBool), result<void>();
  }
  case FieldDescriptor::CPPTYPE_STRING:
    if (text.empty() && field.options().HasExtension(v1::setting) && !takes_empty(field))
      return mismatch(field, text);
    return put(message, field, std::string(text), &R::SetString, &R::AddString), result<void>();
  case FieldDescriptor::CPPTYPE_MESSAGE: break;
  }
  return fail(errc::bad_config, fmt::format("found '{}', expected a map", text.substr(0, 100)));
}

std::string text_of(const pb::Message& message, const FieldDescriptor& field) {
  const auto* reflection = message.GetReflection();
  if (field.is_repeated()) {
    std::vector<std::string> items;
    for (int i = 0; i < reflection->FieldSize(message, &field); ++i)
      items.push_back(scalar_text(message, field, i));
    return items.empty() ? std::string() : fmt::format("[{}]", fmt::join(items, ", "));
  }
  // A plain proto3 string has no presence: the empty one is the absent one.
  const bool is_empty_string = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
                               !takes_empty(field) &&
                               reflection->GetString(message, &field).empty();
  if ((field.has_presence() && !reflection->HasField(message, &field)) || is_empty_string)
    return {};
  return scalar_text(message, field, -1);
}

std::vector<std::string> strings_of(const pb::Message& message, const FieldDescriptor& field) {
  std::vector<std::string> texts;
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_STRING) return texts;
  const auto* reflection = message.GetReflection();
  if (!field.is_repeated()) {
    if (auto text = reflection->GetString(message, &field); !text.empty() || takes_empty(field))
      texts.push_back(std::move(text));
    return texts;
  }
  for (int i = 0; i < reflection->FieldSize(message, &field); ++i)
    texts.push_back(reflection->GetRepeatedString(message, &field, i));
  return texts;
}

std::string expectation_of(const FieldDescriptor& field) {
  const auto& setting = setting_of(field);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
    return field.is_repeated() && !field.is_map() ? "a list of maps" : "a map";
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM)
    return fmt::format("one of {}", fmt::join(choices_of(field), ", "));
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return "true or false";
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING)
    return takes_empty(field) ? "text, also an empty one" : "text";
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ||
      field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT)
    return "a number";
  const auto [low, high] = limits_of(field);
  const auto signed_high = static_cast<std::int64_t>(high);  // read with a unit: never unsigned
  if (setting.unit() == v1::UNIT_MILLISECONDS)
    return fmt::format("a duration such as 500ms, 30s or 2m, from {} to {}", duration_text(low),
                       duration_text(signed_high));
  if (setting.unit() == v1::UNIT_MICROSECONDS)
    return "a duration in whole microseconds such as 500us, 2ms or 1s";
  if (setting.unit() == v1::UNIT_BYTES)
    return fmt::format("a size such as 8GiB or 512MiB, from {} to {}", size_text(low),
                       size_text(signed_high));
  if (std::cmp_equal(low, high)) return fmt::format("{}", low);
  return fmt::format("a whole number from {} to {}", low, high);
}

std::vector<std::string> choices_of(const FieldDescriptor& field) {
  std::vector<std::string> names;
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM) return names;
  for (int i = 0; i < field.enum_type()->value_count(); ++i) {
    const auto& value = *field.enum_type()->value(i);
    const bool is_refused = !value.options().GetExtension(v1::choice).refused().empty();
    if (value.number() != 0 && !is_refused) names.push_back(choice_name(value));
  }
  return names;
}

std::string yaml_string(std::string_view text) {
  constexpr std::string_view plain =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
  const bool is_plain = !text.empty() && text.find_first_not_of(plain) == std::string_view::npos &&
                        text.front() != '-' && text != "null" && text != "." && text != "---";
  if (is_plain) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      (quoted += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    else
      quoted += c;
  }
  return quoted += '"';
}

}  // namespace deepinfer
