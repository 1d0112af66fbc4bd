#include "runtime/http/header_text.hpp"

#include <algorithm>
#include <array>
#include <ctime>

#include <fmt/format.h>

#include "runtime/base/trim.hpp"

namespace deepinfer {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

bool has_token(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const auto end = std::min(list.find(','), list.size());
    if (equal_ignoring_case(trimmed(list.substr(0, end), " \t"), token)) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

bool is_header_name(std::string_view name) {
  constexpr std::string_view marks = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::all_of(name.begin(), name.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           marks.find(c) != std::string_view::npos;
  });
}

bool has_bare_line_feed(std::string_view bytes) {
  const auto at = bytes.find('\n');
  return at != bytes.npos && (at == 0 || bytes[at - 1] != '\r');
}

bool has_folded_line(std::string_view header) {
  return header.find("\n ") != header.npos || header.find("\n\t") != header.npos;
}

std::string clean_header_value(std::string_view value) {
  std::string clean(value);
  for (char& c : clean)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F) c = ' ';
  return clean;
}

std::string http_date(std::int64_t unix_seconds) {
  // Names are written out: those of strftime depend on the locale.
  constexpr std::array days{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array months{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                              "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
                     days.at(static_cast<std::size_t>(parts.tm_wday)), parts.tm_mday,
                     months.at(static_cast<std::size_t>(parts.tm_mon)), parts.tm_year + 1900,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string_view reason_of(int status) {
  switch (status) {
  case 200: return "OK";
  case 201: return "Created";
  case 202: return "Accepted";
  case 204: return "No Content";
  case 301: return "Moved Permanently";
  case 302: return "Found";
  case 304: return "Not Modified";
  case 307: return "Temporary Redirect";
  case 308: return "Permanent Redirect";
  case 400: return "Bad Request";
  case 401: return "Unauthorized";
  case 403: return "Forbidden";
  case 404: return "Not Found";
  case 405: return "Method Not Allowed";
  case 406: return "Not Acceptable";
  case 408: return "Request Timeout";
  case 409: return "Conflict";
  case 413: return "Content Too Large";
  case 415: return "Unsupported Media Type";
  case 417: return "Expectation Failed";
  case 422: return "Unprocessable Content";
  case 429: return "Too Many Requests";
  case 431: return "Request Header Fields Too Large";
  case 499: return "Client Closed Request";
  case 500: return "Internal Server Error";
  case 501: return "Not Implemented";
  case 502: return "Bad Gateway";
  case 503: return "Service Unavailable";
  case 504: return "Gateway Timeout";
  case 505: return "HTTP Version Not Supported";
  default: return "";
  }
}

}  // namespace deepinfer
