#include "runtime/text/chat_schema.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "runtime/base/quoted.hpp"

namespace deepinfer {
namespace {

enum class form { schema, schema_map, schema_list, string, strings, number, count, boolean, array };

struct keyword {
  std::string_view name;
  form value;
};

constexpr std::array keywords{
  keyword{"properties", form::schema_map},
  keyword{"patternProperties", form::schema_map},
  keyword{"$defs", form::schema_map},
  keyword{"definitions", form::schema_map},
  keyword{"dependentSchemas", form::schema_map},
  keyword{"items", form::schema},
  keyword{"additionalProperties", form::schema},
  keyword{"propertyNames", form::schema},
  keyword{"contains", form::schema},
  keyword{"not", form::schema},
  keyword{"if", form::schema},
  keyword{"then", form::schema},
  keyword{"else", form::schema},
  keyword{"unevaluatedItems", form::schema},
  keyword{"unevaluatedProperties", form::schema},
  keyword{"anyOf", form::schema_list},
  keyword{"oneOf", form::schema_list},
  keyword{"allOf", form::schema_list},
  keyword{"prefixItems", form::schema_list},
  keyword{"required", form::strings},
  keyword{"enum", form::array},
  keyword{"pattern", form::string},
  keyword{"title", form::string},
  keyword{"description", form::string},
  keyword{"format", form::string},
  keyword{"$id", form::string},
  keyword{"$schema", form::string},
  keyword{"$ref", form::string},
  keyword{"minimum", form::number},
  keyword{"maximum", form::number},
  keyword{"exclusiveMinimum", form::number},
  keyword{"exclusiveMaximum", form::number},
  keyword{"multipleOf", form::number},
  keyword{"minLength", form::count},
  keyword{"maxLength", form::count},
  keyword{"minItems", form::count},
  keyword{"maxItems", form::count},
  keyword{"minProperties", form::count},
  keyword{"maxProperties", form::count},
  keyword{"minContains", form::count},
  keyword{"maxContains", form::count},
  keyword{"uniqueItems", form::boolean},
};

constexpr std::array<std::string_view, 7> type_names{"array",  "boolean", "integer", "null",
                                                     "number", "object",  "string"};

bool is_type_name(const json::value& value) {
  return value.is_string() &&
         std::find(type_names.begin(), type_names.end(), value.get_string()) != type_names.end();
}

tl::unexpected<error> wrong(std::string_view place, const json::value& found,
                            std::string_view expected) {
  return fail(errc::invalid_argument, fmt::format("schema{}: found {}, expected {}", place,
                                                  shortened(to_text(found)), expected));
}

class checker {
public:
  explicit checker(const json::value& root) : root_(root) {}

  result<void> check(const json::value& schema, const std::string& place) const {
    if (schema.is_bool()) return {};
    if (!schema.is_object()) return wrong(place, schema, "an object or a boolean");
    for (const auto& [name, value] : schema.get_object()) {
      const auto here = place + "." + std::string(name);
      if (name == "type") {
        DI_TRY_VOID(check_type(value, here));
      } else if (name == "$ref") {
        DI_TRY_VOID(check_reference(value, here));
      } else {
        const auto* known =
          std::find_if(keywords.begin(), keywords.end(),
                       [key = std::string_view(name)](const keyword& k) { return k.name == key; });
        if (known != keywords.end()) DI_TRY_VOID(check_form(known->value, value, here));
      }
    }
    return {};
  }

private:
  result<void> check_type(const json::value& value, const std::string& place) const {
    if (is_type_name(value)) return {};
    const auto* list = value.if_array();
    if (!list || list->empty() || !std::all_of(list->begin(), list->end(), is_type_name))
      return wrong(place, value, "a JSON type or a list of them");
    for (std::size_t i = 0; i < list->size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if ((*list)[i] == (*list)[j]) return wrong(place, value, "each type once");
    return {};
  }

  result<void> check_reference(const json::value& value, const std::string& place) const {
    const auto* text = value.if_string();
    if (!text || !text->starts_with('#'))
      return wrong(place, value, "a reference into this document (\"#/...\")");
    if (text->size() > 1 && (*text)[1] != '/') return {};  // an anchor
    boost::system::error_code missing;
    if (text->size() > 1 && !root_.find_pointer(std::string_view(*text).substr(1), missing))
      return wrong(place, value, "a place that exists");
    return {};
  }

  result<void> check_form(form expected, const json::value& value, const std::string& place) const {
    switch (expected) {
    case form::schema: return check(value, place);
    case form::schema_map:
      if (!value.is_object()) return wrong(place, value, "an object of schemas");
      for (const auto& [name, item] : value.get_object())
        DI_TRY_VOID(check(item, place + "." + std::string(name)));
      return {};
    case form::schema_list:
      if (!value.is_array() || value.get_array().empty())
        return wrong(place, value, "a list of schemas");
      for (const auto& item : value.get_array()) DI_TRY_VOID(check(item, place + "[]"));
      return {};
    case form::string:
      if (!value.is_string()) return wrong(place, value, "a string");
      return {};
    case form::strings:
      if (!value.is_array() || !std::all_of(value.get_array().begin(), value.get_array().end(),
                                            [](const auto& item) { return item.is_string(); }))
        return wrong(place, value, "a list of strings");
      return {};
    case form::number:
      if (!value.is_number()) return wrong(place, value, "a number");
      return {};
    case form::count:
      if (!value.is_uint64() && !(value.is_int64() && value.get_int64() >= 0))
        return wrong(place, value, "a whole number from 0");
      return {};
    case form::boolean:
      if (!value.is_bool()) return wrong(place, value, "true or false");
      return {};
    case form::array:
      if (!value.is_array()) return wrong(place, value, "a list");
      return {};
    }
    return {};
  }

  const json::value& root_;
};

tl::unexpected<error> strict_failure(const std::string& place, std::string_view what) {
  return fail(errc::invalid_argument, fmt::format("strict schema{}: {}", place, what));
}

result<json::value> made_strict(const json::value& schema, const std::string& place,
                                bool empty_allowed);

/// The objects' part: false for additionalProperties, all properties in required, both at the end.
result<void> close_object(json::object& schema, const std::string& place, bool empty_allowed) {
  if (!schema.contains("properties")) schema["properties"] = json::object{};
  auto& properties = schema["properties"];
  if (!properties.is_object()) return strict_failure(place, "`properties` is not an object");
  if (properties.get_object().empty() && !empty_allowed)
    return strict_failure(place, "an object with no properties is not allowed");
  if (const auto* more = schema.if_contains("additionalProperties"); more && *more != false)
    return strict_failure(place, "additionalProperties must be false");
  if (const auto* required = schema.if_contains("required")) {
    if (!required->is_array()) return strict_failure(place, "`required` is not a list");
    std::set<std::string> names;
    for (const auto& name : required->get_array()) {
      if (!name.is_string() || !properties.get_object().contains(name.get_string()))
        return strict_failure(place, fmt::format("required {} is no property", to_text(name)));
      if (!names.emplace(name.get_string()).second)
        return strict_failure(place, fmt::format("required {} comes twice", to_text(name)));
    }
    if (names.size() != properties.get_object().size())
      return strict_failure(place, "required properties must match all properties in the object");
  }
  json::array all;
  for (auto& [name, item] : properties.get_object()) {
    all.emplace_back(name);
    DI_TRY(item, made_strict(item, place + "." + std::string(name), false));
  }
  json::object closed;
  for (auto& [name, item] : schema)
    if (name != "additionalProperties" && name != "required") closed[name] = item;
  closed["additionalProperties"] = false;
  closed["required"] = std::move(all);
  schema = std::move(closed);
  return {};
}

result<json::value> made_strict(const json::value& schema, const std::string& place,
                                bool empty_allowed) {
  const auto* given = schema.if_object();
  if (!given || (!given->contains("type") && !given->contains("anyOf") && !given->contains("$ref")))
    return strict_failure(place, "one of `type`, `anyOf`, `$ref` is required");
  json::object strict = *given;
  if (const auto* type = strict.if_contains("type")) {
    if (*type == "object") DI_TRY_VOID(close_object(strict, place, empty_allowed));
    if (*type == "array") {
      if (!strict.contains("items")) return strict_failure(place, "an array needs `items`");
      DI_TRY(strict["items"], made_strict(strict["items"], place + ".items", false));
    }
  }
  if (auto* options = strict.if_contains("anyOf"); options && options->is_array())
    for (auto& option : options->get_array()) {
      DI_TRY(option, made_strict(option, place + ".anyOf", false));
    }
  for (const auto* definitions : {"$defs", "definitions"})
    if (auto* map = strict.if_contains(definitions); map && map->is_object())
      for (auto& [name, item] : map->get_object()) {
        DI_TRY(item, made_strict(item, place + "." + std::string(name), false));
      }
  return json::value(std::move(strict));
}

}  // namespace

result<void> check_schema(const json::value& schema) {
  return checker(schema).check(schema, "");
}

result<json::value> strict_schema(const json::value& schema, bool empty_allowed) {
  const auto* type = schema.is_object() ? schema.get_object().if_contains("type") : nullptr;
  if (!type || *type != "object")
    return strict_failure("", "the top level must be an object schema");
  return made_strict(schema, "", empty_allowed);
}

}  // namespace deepinfer
