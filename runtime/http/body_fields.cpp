#include "runtime/http/body_fields.hpp"

#include <limits>

#include <fmt/format.h>

#include "runtime/base/whole_number.hpp"
#include "runtime/http/json_text.hpp"

namespace deepinfer {

std::string shown_value(const json::value& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_string()) return quoted_input(value.get_string());
  return to_text(value);
}

std::optional<token_id> token_id_of(const json::value& value) {
  const auto read = whole_number(value);
  if (!read || *read < 0 || *read > std::numeric_limits<token_id>::max()) return std::nullopt;
  return static_cast<token_id>(*read);
}

const json::value* body_fields::find(std::string_view name) {
  known_.emplace(name);
  const auto* value = object_->if_contains(name);
  return value && !value->is_null() ? value : nullptr;
}

std::string body_fields::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

std::vector<std::string> body_fields::unknown() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : *object_)
    if (!known_.contains(std::string_view(name))) names.push_back(path(name));
  return names;
}

tl::unexpected<error> body_fields::failure(std::string_view name, std::string_view what) const {
  const auto place = path(name);
  return fail(errc::invalid_argument, fmt::format("{}: {}", place, what), place);
}

tl::unexpected<error> body_fields::wrong(std::string_view name, const json::value& found,
                                         std::string_view expected) const {
  return failure(name, fmt::format("found {}, expected {}", shown_value(found), expected));
}

result<std::optional<std::string>> body_fields::text(std::string_view name) {
  const auto* value = find(name);
  if (!value) return std::optional<std::string>{};
  if (!value->is_string()) return wrong(name, *value, "a string");
  return std::optional<std::string>(std::string(value->get_string()));
}

result<bool> body_fields::flag(std::string_view name, bool otherwise) {
  const auto* value = find(name);
  if (!value) return otherwise;
  if (!value->is_bool()) return wrong(name, *value, "true or false");
  return value->get_bool();
}

result<std::optional<double>> body_fields::number(std::string_view name, double least,
                                                  double most) {
  const auto* value = find(name);
  if (!value) return std::optional<double>{};
  const auto read =
    value->is_number() ? value->to_number<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(read >= least && read <= most))
    return wrong(name, *value, fmt::format("a number from {} to {}", least, most));
  return std::optional<double>(read);
}

result<std::optional<double>> body_fields::positive(std::string_view name, double most) {
  const auto* value = find(name);
  if (!value) return std::optional<double>{};
  const auto read = value->is_number() ? value->to_number<double>() : 0.0;
  if (!(read > 0 && read <= most))
    return wrong(name, *value, fmt::format("a number above 0, at most {}", most));
  return std::optional<double>(read);
}

result<std::optional<std::int64_t>> body_fields::integer(std::string_view name, std::int64_t least,
                                                         std::int64_t most) {
  const auto* value = find(name);
  if (!value) return std::optional<std::int64_t>{};
  const auto read = whole_number(*value);
  if (!read || *read < least || *read > most)
    return wrong(name, *value, fmt::format("a whole number from {} to {}", least, most));
  return read;
}

result<std::optional<std::int64_t>> body_fields::whole(std::string_view name, std::int64_t least) {
  const auto* value = find(name);
  if (!value) return std::optional<std::int64_t>{};
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  const auto read = value->is_uint64() ? std::optional(most) : whole_number(*value);
  if (!read || *read < least)
    return wrong(name, *value, fmt::format("a whole number, at least {}", least));
  return read;
}

result<std::optional<body_fields>> body_fields::object(std::string_view name) {
  const auto* value = find(name);
  if (!value) return std::optional<body_fields>{};
  if (!value->is_object()) return wrong(name, *value, "an object");
  return std::optional<body_fields>(body_fields(value->get_object(), path(name)));
}

result<std::vector<std::string>> body_fields::texts(std::string_view name, std::size_t most) {
  std::vector<std::string> out;
  const auto* value = find(name);
  if (!value) return out;
  if (!value->is_array()) return wrong(name, *value, "a list of strings");
  const auto& items = value->get_array();
  if (items.size() > most)
    return failure(name, fmt::format("found {} entries, expected at most {}", items.size(), most));
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) return wrong(fmt::format("{}[{}]", name, i), items[i], "a string");
    out.emplace_back(items[i].get_string());
  }
  return out;
}

result<std::vector<token_id>> body_fields::ids(std::string_view name, std::size_t most) {
  std::vector<token_id> out;
  const auto* value = find(name);
  if (!value) return out;
  if (!value->is_array()) return wrong(name, *value, "a list of token ids");
  const auto& items = value->get_array();
  if (items.size() > most)
    return failure(name, fmt::format("found {} entries, expected at most {}", items.size(), most));
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto id = token_id_of(items[i]);
    if (!id) return wrong(fmt::format("{}[{}]", name, i), items[i], "a token id from 0");
    out.push_back(*id);
  }
  return out;
}

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
