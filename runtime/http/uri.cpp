#include "runtime/http/uri.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace deepinfer {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Where the path of an absolute target begins, or its end; npos: the target is not absolute.
std::size_t path_begin_of_absolute(std::string_view target) {
  const auto colon = target.find("://");
  if (colon == std::string_view::npos || colon == 0) return std::string_view::npos;
  const auto is_scheme_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '-' || c == '.';
  };
  const auto scheme = target.substr(0, colon);
  if (!std::all_of(scheme.begin(), scheme.end(), is_scheme_letter)) return std::string_view::npos;
  return std::min(target.find_first_of("/?#", colon + 3), target.size());
}

}  // namespace

result<std::string> percent_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const int high = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0)
      return fail(errc::invalid_argument,
                  fmt::format("byte {}: % is not followed by two hexadecimal digits", i));
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

result<uri_target> split_target(std::string_view target) {
  if (target == "*") return uri_target{"*", ""};
  if (target.empty() || target.front() != '/') {
    const auto begin = path_begin_of_absolute(target);
    if (begin == std::string_view::npos)
      return fail(errc::invalid_argument,
                  "request target: expected a path that begins with / or an absolute URI");
    target.remove_prefix(begin);
  }
  target = target.substr(0, target.find('#'));
  const auto mark = target.find('?');
  DI_TRY(auto path, percent_decode(target.substr(0, mark)), "request target");
  if (path.empty()) path = "/";
  return uri_target{std::move(path), mark == std::string_view::npos
                                       ? std::string()
                                       : std::string(target.substr(mark + 1))};
}

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  const auto decode = [](std::string_view text) {
    std::string plain(text);
    std::replace(plain.begin(), plain.end(), '+', ' ');
    return percent_decode(plain);
  };
  while (!query.empty()) {
    const auto end = std::min(query.find('&'), query.size());
    const auto pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const auto equals = std::min(pair.find('='), pair.size());
    const auto key = decode(pair.substr(0, equals));
    if (!key || *key != name) continue;
    const auto value = pair.substr(std::min(equals + 1, pair.size()));
    return decode(value).value_or(std::string(value));
  }
  return std::nullopt;
}

}  // namespace deepinfer
