#include "runtime/http/api_rules.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "runtime/base/quoted.hpp"
#include "runtime/http/header_text.hpp"
#include "runtime/http/uri.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t longest_request_id = 128;
constexpr std::size_t most_listed = 20;
constexpr std::size_t longest_listed = 64;

std::string lower(std::string_view text) {
  std::string out(text);
  for (auto& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

bool is_printable(char c) {
  return c > 0x20 && c < 0x7F;
}

bool is_hex(std::string_view text, std::size_t begin, std::size_t size) {
  const auto part = text.substr(begin, size);
  return part.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         part.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

result<void> check_content_type(const http_request& request) {
  const auto* header = request.header("content-type");
  if (!header) return {};
  auto kind = lower(std::string_view(*header).substr(0, header->find(';')));
  kind.erase(std::remove(kind.begin(), kind.end(), ' '), kind.end());
  const bool is_json =
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
  if (is_json || kind.empty()) return {};
  return fail(errc::unsupported_media_type,
              fmt::format("Content-Type: found {}, expected application/json", quoted(*header)));
}

result<void> check_content_encoding(const http_request& request) {
  for (const auto& it : request.headers) {
    if (!equal_ignoring_case(it.name, "content-encoding")) continue;
    if (it.value.empty() || equal_ignoring_case(it.value, "identity")) continue;
    return fail(errc::unsupported_media_type,
                fmt::format("Content-Encoding: found {}, expected identity or no such header",
                            quoted(it.value)));
  }
  return {};
}

std::string client_request_id_of(const http_request& request) {
  const auto* header = request.header("x-request-id");
  if (!header || header->size() > longest_request_id) return {};
  return std::all_of(header->begin(), header->end(), is_printable) ? *header : std::string();
}

std::string traceparent_of(const http_request& request) {
  const auto* header = request.header("traceparent");
  if (!header || header->size() != 55) return {};
  const std::string_view it = *header;
  const bool has_form = it[2] == '-' && it[35] == '-' && it[52] == '-' && is_hex(it, 3, 32) &&
                        is_hex(it, 36, 16) && it.starts_with("00") &&
                        it.substr(53).find_first_not_of("0123456789abcdef") == it.npos;
  return has_form ? *header : std::string();
}

result<std::int64_t> query_number(std::string_view query, std::string_view name,
                                  std::int64_t otherwise, std::int64_t least, std::int64_t most) {
  const auto text = query_value(query, name);
  if (!text) return otherwise;
  const auto* end = text->data() + text->size();
  std::int64_t value = 0;
  const auto read = std::from_chars(text->data(), end, value);
  if (read.ec == std::errc{} && read.ptr == end && value >= least && value <= most) return value;
  return fail(errc::invalid_argument,
              fmt::format("{}: found {}, expected a whole number from {} to {}", name,
                          quoted(*text), least, most),
              std::string(name));
}

std::string header_list(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), most_listed); ++i) {
    if (i > 0) out += ", ";
    for (const char c : std::string_view(names[i]).substr(0, longest_listed))
      out += is_printable(c) && c != ',' ? c : '?';
  }
  if (names.size() > most_listed) out += ", ...";
  return out;
}

std::vector<http_header> cors_headers(const http_request& request,
                                      const std::vector<std::string>& origins) {
  const auto* origin = request.header("origin");
  if (!origin || origins.empty()) return {};
  const bool is_open = std::find(origins.begin(), origins.end(), "*") != origins.end();
  if (!is_open && std::find(origins.begin(), origins.end(), *origin) == origins.end())
    return {{"Vary", "Origin"}};
  return {{"Access-Control-Allow-Origin", is_open ? "*" : *origin},
          {"Access-Control-Expose-Headers",
           "X-Request-Id, X-Ignored-Fields, OpenAI-Processing-Ms, Retry-After"},
          {"Vary", "Origin"}};
}

namespace {

constexpr std::size_t longest_header_list = 2048;

/// The client libraries of OpenAI send headers of their own, more with each version: who may ask at
/// all may send what it asks for.
std::string allowed_headers(const http_request& request) {
  const auto* asked = request.header("access-control-request-headers");
  const auto is_listed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  };
  if (!asked || asked->empty() || asked->size() > longest_header_list ||
      !std::all_of(asked->begin(), asked->end(), is_listed))
    return "Authorization, Content-Type, X-Api-Key, X-Request-Id, Traceparent";
  return *asked;
}

}  // namespace

http_response options_response(const http_request& request, const std::string& methods) {
  http_response out;
  out.status = 204;
  out.headers = {{"Allow", methods}};
  if (!request.header("access-control-request-method")) return out;
  out.headers.push_back({"Access-Control-Allow-Methods", methods});
  out.headers.push_back({"Access-Control-Allow-Headers", allowed_headers(request)});
  out.headers.push_back({"Access-Control-Max-Age", "600"});
  return out;
}

}  // namespace deepinfer
