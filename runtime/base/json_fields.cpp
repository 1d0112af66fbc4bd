#include "runtime/base/json_fields.hpp"

#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "runtime/base/quoted.hpp"
#include "runtime/base/whole_number.hpp"

namespace deepinfer {

std::string shown_value(const json::value& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_string()) return quoted(value.get_string());
  return to_text(value);
}

std::optional<token_id> token_id_of(std::string_view key) {
  const auto* end = key.data() + key.size();
  token_id id = -1;
  const auto read = std::from_chars(key.data(), end, id);
  if (read.ec != std::errc{} || read.ptr != end || id < 0) return std::nullopt;
  return id;
}

const json::value* json_fields::given(std::string_view name) {
  const auto entry = object_->find(name);
  if (entry == object_->end()) return nullptr;
  asked_.resize(object_->size());
  asked_[static_cast<std::size_t>(entry - object_->begin())] = true;
  return &entry->value();
}

const json::value* json_fields::find(std::string_view name) {
  const auto* value = given(name);
  return value && !value->is_null() ? value : nullptr;
}

std::string json_fields::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

std::vector<std::string> json_fields::unknown() const {
  std::vector<std::string> names;
  std::size_t at = 0;
  for (const auto& [name, value] : *object_) {
    if (asked_.empty() || !asked_[at]) names.push_back(path(name));
    ++at;
  }
  return names;
}

tl::unexpected<error> json_fields::failure(std::string_view name, std::string_view what) const {
  const auto place = shortened(path(name));
  return fail(errc::invalid_argument, fmt::format("{}: {}", place, what), place);
}

tl::unexpected<error> json_fields::wrong(std::string_view name, const json::value& found,
                                         std::string_view expected) const {
  return failure(name, fmt::format("found {}, expected {}", shown_value(found), expected));
}

result<std::optional<std::string>> json_fields::text(std::string_view name) {
  const auto* value = find(name);
  if (!value) return std::optional<std::string>{};
  if (!value->is_string()) return wrong(name, *value, "a string");
  return std::optional<std::string>(std::string(value->get_string()));
}

result<bool> json_fields::flag(std::string_view name, bool otherwise) {
  const auto* value = find(name);
  if (!value) return otherwise;
  if (!value->is_bool()) return wrong(name, *value, "true or false");
  return value->get_bool();
}

result<std::optional<double>> json_fields::number(std::string_view name, double least,
                                                  double most) {
  const auto* value = find(name);
  if (!value) return std::optional<double>{};
  const auto read =
    value->is_number() ? value->to_number<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(read >= least && read <= most))
    return wrong(name, *value, fmt::format("a number from {} to {}", least, most));
  return std::optional<double>(read);
}

result<std::optional<double>> json_fields::positive(std::string_view name, double most) {
  const auto* value = find(name);
  if (!value) return std::optional<double>{};
  const auto read = value->is_number() ? value->to_number<double>() : 0.0;
  if (!(read > 0 && read <= most))
    return wrong(name, *value, fmt::format("a number above 0, at most {}", most));
  return std::optional<double>(read);
}

result<std::optional<std::int64_t>> json_fields::integer(std::string_view name, std::int64_t least,
                                                         std::int64_t most) {
  const auto* value = find(name);
  if (!value) return std::optional<std::int64_t>{};
  const auto read = whole_number(*value);
  if (!read || *read < least || *read > most)
    return wrong(name, *value, fmt::format("a whole number from {} to {}", least, most));
  return read;
}

result<std::optional<std::int64_t>> json_fields::whole(std::string_view name, std::int64_t least) {
  const auto* value = find(name);
  if (!value) return std::optional<std::int64_t>{};
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  const auto read = value->is_uint64() ? std::optional(most) : whole_number(*value);
  if (!read || *read < least)
    return wrong(name, *value, fmt::format("a whole number, at least {}", least));
  return read;
}

result<std::optional<json_fields>> json_fields::object(std::string_view name) {
  const auto* value = find(name);
  if (!value) return std::optional<json_fields>{};
  if (!value->is_object()) return wrong(name, *value, "an object");
  return std::optional<json_fields>(json_fields(value->get_object(), path(name)));
}

result<std::string> json_fields::required_text(std::string_view name) {
  const auto* value = given(name);
  if (!value) return failure(name, "is missing");
  if (!value->is_string()) return wrong(name, *value, "a string");
  return std::string(value->get_string());
}

result<json_fields> json_fields::required_object(std::string_view name) {
  const auto* value = given(name);
  if (!value) return failure(name, "is missing");
  if (!value->is_object()) return wrong(name, *value, "an object");
  return json_fields(value->get_object(), path(name));
}

result<const json::array*> json_fields::list(std::string_view name, std::size_t most,
                                             std::string_view kind) {
  const auto* value = find(name);
  if (!value) return nullptr;
  if (!value->is_array()) return wrong(name, *value, kind);
  const auto& items = value->get_array();
  if (items.size() > most)
    return failure(name, fmt::format("found {} entries, expected at most {}", items.size(), most));
  return &items;
}

result<std::vector<json_fields>> json_fields::objects(std::string_view name, std::size_t most) {
  std::vector<json_fields> out;
  DI_TRY(const auto* items, list(name, most, "a list"));
  if (!items) return out;
  out.reserve(items->size());
  for (std::size_t i = 0; i < items->size(); ++i) {
    const auto& item = (*items)[i];
    const auto place = fmt::format("{}[{}]", name, i);
    if (!item.is_object()) return wrong(place, item, "an object");
    out.emplace_back(item.get_object(), path(place));
  }
  return out;
}

result<std::vector<std::string>> json_fields::texts(std::string_view name, std::size_t most) {
  std::vector<std::string> out;
  DI_TRY(const auto* items, list(name, most, "a list of strings"));
  if (!items) return out;
  for (std::size_t i = 0; i < items->size(); ++i) {
    const auto& item = (*items)[i];
    if (!item.is_string()) return wrong(fmt::format("{}[{}]", name, i), item, "a string");
    out.emplace_back(item.get_string());
  }
  return out;
}

result<std::vector<token_id>> json_fields::ids(std::string_view name, std::size_t most) {
  DI_TRY(const auto* items, list(name, most, "a list of token ids"));
  return items ? ids_of(*items, name) : std::vector<token_id>{};
}

result<std::vector<token_id>> json_fields::ids_of(const json::array& items,
                                                  std::string_view place) const {
  std::vector<token_id> out;
  out.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto read = whole_number(items[i]);
    if (!read || *read < 0 || *read > std::numeric_limits<token_id>::max())
      return wrong(fmt::format("{}[{}]", place, i), items[i], "a token id from 0");
    out.push_back(static_cast<token_id>(*read));
  }
  return out;
}

}  // namespace deepinfer
