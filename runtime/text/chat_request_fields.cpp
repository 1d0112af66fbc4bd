#include "runtime/text/chat_request_fields.hpp"

#include <charconv>

#include <fmt/format.h>

#include "runtime/base/whole_number.hpp"
#include "runtime/text/utf8.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t longest_quote = 100;
constexpr std::size_t most_token_ids = 256;

std::string cut(std::string text) {
  if (text.size() <= longest_quote) return text;
  return repair_utf8(std::string_view(text).substr(0, longest_quote)) + "...";
}

/// What a value looks like in a message; a long one by its kind.
std::string shown(const json::value& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return cut(to_text(value));
}

}  // namespace

std::string quoted(std::string_view text) {
  return fmt::format("\"{}\"", cut(std::string(text)));
}

std::string field_reader::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const json::value* field_reader::find(std::string_view name) const {
  const auto* value = object_->if_contains(name);
  return value && !value->is_null() ? value : nullptr;
}

tl::unexpected<error> field_reader::failure(std::string_view name, std::string_view what) const {
  const auto place = cut(path(name));
  return fail(errc::invalid_argument, fmt::format("{}: {}", place, what), place);
}

tl::unexpected<error> field_reader::wrong(std::string_view name, const json::value& found,
                                          std::string_view expected) const {
  return failure(name, fmt::format("{} found, {} expected", shown(found), expected));
}

result<std::optional<std::string>> field_reader::string(std::string_view name) const {
  const auto* value = find(name);
  if (!value) return std::optional<std::string>{};
  if (!value->is_string()) return wrong(name, *value, "a string");
  return std::optional<std::string>(std::string(value->get_string()));
}

result<std::optional<bool>> field_reader::boolean(std::string_view name) const {
  const auto* value = find(name);
  if (!value) return std::optional<bool>{};
  if (!value->is_bool()) return wrong(name, *value, "true or false");
  return std::optional<bool>(value->get_bool());
}

result<std::optional<double>> field_reader::number(std::string_view name, double least,
                                                   double most) const {
  const auto* value = find(name);
  if (!value) return std::optional<double>{};
  const auto expected = fmt::format("a number from {} to {}", least, most);
  if (!value->is_number()) return wrong(name, *value, expected);
  const auto read = value->to_number<double>();
  if (!(read >= least && read <= most)) return wrong(name, *value, expected);
  return std::optional<double>(read);
}

result<std::optional<double>> field_reader::positive(std::string_view name, double most) const {
  const auto* value = find(name);
  if (!value) return std::optional<double>{};
  const auto read = value->is_number() ? value->to_number<double>() : 0.0;
  if (!(read > 0 && read <= most))
    return wrong(name, *value, fmt::format("a number above 0, at most {}", most));
  return std::optional<double>(read);
}

result<std::optional<std::int64_t>> field_reader::integer(std::string_view name, std::int64_t least,
                                                          std::int64_t most) const {
  const auto* value = find(name);
  if (!value) return std::optional<std::int64_t>{};
  const auto read = whole_number(*value);
  if (!read || *read < least || *read > most)
    return wrong(name, *value, fmt::format("a whole number from {} to {}", least, most));
  return read;
}

result<std::optional<field_reader>> field_reader::object(std::string_view name) const {
  const auto* value = find(name);
  if (!value) return std::optional<field_reader>{};
  if (!value->is_object()) return wrong(name, *value, "an object");
  return std::optional<field_reader>(field_reader(value->get_object(), path(name)));
}

result<std::string> field_reader::required_string(std::string_view name) const {
  if (!has(name)) return failure(name, "is missing");
  const auto& value = at(name);
  if (!value.is_string()) return wrong(name, value, "a string");
  return std::string(value.get_string());
}

result<field_reader> field_reader::required_object(std::string_view name) const {
  if (!has(name)) return failure(name, "is missing");
  const auto& value = at(name);
  if (!value.is_object()) return wrong(name, value, "an object");
  return field_reader(value.get_object(), path(name));
}

result<const json::array*> field_reader::list(std::string_view name, std::size_t most) const {
  static const json::array none;
  const auto* value = find(name);
  if (!value) return &none;
  if (!value->is_array()) return wrong(name, *value, "a list");
  const auto& items = value->get_array();
  if (items.size() > most)
    return failure(name, fmt::format("{} entries found, at most {} allowed", items.size(), most));
  return &items;
}

result<std::vector<field_reader>> field_reader::array(std::string_view name,
                                                      std::size_t most) const {
  DI_TRY(const auto* items, list(name, most));
  std::vector<field_reader> readers;
  for (std::size_t i = 0; i < items->size(); ++i) {
    const auto place = fmt::format("{}[{}]", name, i);
    if (!(*items)[i].is_object()) return wrong(place, (*items)[i], "an object");
    readers.emplace_back((*items)[i].get_object(), path(place));
  }
  return readers;
}

result<std::vector<std::string>> field_reader::strings(std::string_view name,
                                                       std::size_t most) const {
  DI_TRY(const auto* items, list(name, most));
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < items->size(); ++i) {
    if (!(*items)[i].is_string())
      return wrong(fmt::format("{}[{}]", name, i), (*items)[i], "a string");
    texts.emplace_back((*items)[i].get_string());
  }
  return texts;
}

result<std::vector<token_id>> field_reader::token_ids(std::string_view name) const {
  DI_TRY(const auto* items, list(name, most_token_ids));
  std::vector<token_id> ids;
  for (std::size_t i = 0; i < items->size(); ++i) {
    const auto read = whole_number((*items)[i]);
    if (!read || *read < 0 || *read > 2147483647)
      return wrong(fmt::format("{}[{}]", name, i), (*items)[i], "a token id from 0");
    ids.push_back(static_cast<token_id>(*read));
  }
  return ids;
}

result<token_id> field_reader::key_as_token(std::string_view key) const {
  token_id id = -1;
  const auto read = std::from_chars(key.data(), key.data() + key.size(), id);
  if (read.ec != std::errc{} || read.ptr != key.data() + key.size() || id < 0)
    return failure(quoted(key), "a token id expected as key");
  return id;
}

}  // namespace deepinfer
