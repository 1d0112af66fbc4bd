#include "runtime/model/config_reader.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace deepinfer {

std::string short_text(const json::value& value) {
  constexpr std::size_t most = 60;
  auto text = to_text(value);
  if (text.size() <= most) return text;
  auto end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

const json::value* config_reader::find(config_key key) {
  const auto lookup = [&](std::string_view name) -> const json::value* {
    if (name.empty()) return nullptr;
    ignore(name);
    const auto* value = object_.if_contains(name);
    return value && !value->is_null() ? value : nullptr;
  };
  const auto* first = lookup(key.name);
  const auto* second = lookup(key.other);
  if (first && second && *first != *second && !latch_)
    latch_ = error{errc::bad_checkpoint,
                   fmt::format("{}: found {}, but {} is {}: expected the same value",
                               path(key.name), short_text(*first), key.other, short_text(*second)),
                   {}};
  return first ? first : second;
}

void config_reader::refuse(config_key key, const json::value* found, std::string_view expected) {
  if (latch_) return;
  auto name = path(key.name);
  if (!object_.contains(key.name) && object_.contains(key.other)) name = path(key.other);
  latch_ = error{errc::bad_checkpoint,
                 fmt::format("{}: found {}, expected {}", name,
                             found ? short_text(*found) : "nothing", expected),
                 {}};
}

std::optional<std::int64_t> config_reader::whole_value(config_key key, const json::value& value,
                                                       integer_range range) {
  const auto is_whole = value.is_int64() || value.is_uint64();
  const auto fits = value.is_int64() || (value.is_uint64() && value.get_uint64() <= INT64_MAX);
  if (fits) {
    const auto number = value.to_number<std::int64_t>();
    if (number >= range.least && number <= range.most) return number;
  }
  refuse(key, &value,
         is_whole ? fmt::format("{} to {}", range.least, range.most)
                  : fmt::format("a whole number from {} to {}", range.least, range.most));
  return std::nullopt;
}

std::optional<std::int64_t> config_reader::whole(config_key key, integer_range range) {
  const auto* value = find(key);
  if (value) return whole_value(key, *value, range);
  refuse(key, nullptr, fmt::format("a whole number from {} to {}", range.least, range.most));
  return std::nullopt;
}

void config_reader::real(config_key key, double& out, double least, double most) {
  const auto* value = find(key);
  if (value && value->is_number()) {
    const auto number = value->to_number<double>();
    if (std::isfinite(number) && number >= least && number <= most) {
      out = number;
      return;
    }
  }
  refuse(key, value, fmt::format("a number from {} to {}", least, most));
}

void config_reader::boolean(config_key key, bool& out) {
  const auto* value = find(key);
  if (value && value->is_bool()) {
    out = value->get_bool();
  } else {
    refuse(key, value, "true or false");
  }
}

void config_reader::text(config_key key, std::string& out) {
  const auto* value = find(key);
  if (value && value->is_string()) {
    out = std::string(value->get_string());
  } else {
    refuse(key, value, "a string");
  }
}

void config_reader::integers(config_key key, std::vector<std::int32_t>& out, integer_range each,
                             std::size_t most_entries) {
  const auto* value = find(key);
  if (!value || !value->is_array() || value->get_array().size() > most_entries)
    return refuse(key, value, fmt::format("a list of at most {} whole numbers", most_entries));
  out.clear();
  for (const auto& entry : value->get_array()) {
    const auto number = whole_value(key, entry, each);
    if (!number) return;
    out.push_back(static_cast<std::int32_t>(*number));
  }
}

void config_reader::only(config_key key, std::initializer_list<std::string_view> allowed) {
  const auto* value = find(key);
  if (!value) return;
  // 0 and 0.0 are the same setting.
  const auto text = value->is_number() && value->to_number<double>() == 0 ? "0" : to_text(*value);
  for (const auto choice : allowed)
    if (text == choice) return;
  refuse(key, value, fmt::format("{}", fmt::join(allowed, " or ")));
}

void config_reader::exactly(config_key key, std::string_view allowed) {
  if (!has(key)) return refuse(key, nullptr, allowed);
  only(key, {allowed});
}

const json::object* config_reader::child(config_key key) {
  const auto* value = find(key);
  if (!value) return nullptr;
  if (!value->is_object()) {
    refuse(key, value, "an object");
    return nullptr;
  }
  return &value->get_object();
}

std::vector<std::string> config_reader::unread() const {
  std::vector<std::string> names;
  for (const auto& entry : object_)
    if (const std::string_view name(entry.key().data(), entry.key().size()); !asked_.contains(name))
      names.emplace_back(name);
  return names;
}

}  // namespace deepinfer
