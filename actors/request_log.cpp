#include "actors/request_log.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/base/json.hpp"

namespace deepinfer {
namespace {

/// Of a text in a log line; a prompt may have a megabyte.
constexpr std::size_t most_logged = 4096;

double ms(std::int64_t us) {
  return static_cast<double>(us) / 1000.0;
}

/// A remote client may have called its request anything, and may have been refused for it.
std::string shown(const std::string& id) {
  const bool is_plain =
    std::all_of(id.begin(), id.end(), [](char it) { return it > ' ' && it < 0x7f && it != '"'; });
  return is_plain ? id.substr(0, most_logged) : in_quotes(id);
}

}  // namespace

std::string in_quotes(std::string_view text) {
  return to_text(json::value(json::string(text.substr(0, most_logged))));
}

std::string trace_of(const std::string& traceparent) {
  return traceparent.size() >= 35 ? traceparent.substr(3, 32) : std::string();
}

std::string line_of(const request_names& names) {
  std::string out = "request " + shown(names.id);
  if (!names.client_request_id.empty()) out += " client_id=" + in_quotes(names.client_request_id);
  if (!names.tenant.empty()) out += " tenant=" + in_quotes(names.tenant);
  if (!names.trace_id.empty()) out += " trace=" + names.trace_id;
  return out;
}

void add_names(std::vector<log_field>& out, const request_names& names) {
  if (!names.client_request_id.empty())
    out.emplace_back("client_request_id", names.client_request_id);
  if (!names.tenant.empty()) out.emplace_back("tenant", names.tenant);
  if (!names.trace_id.empty()) out.emplace_back("trace_id", names.trace_id);
}

std::string log_line_of(const ended_request& it) {
  auto out = line_of({it.id, it.client_request_id, it.tenant, it.trace_id});
  out += " finish=" + it.finish;
  if (it.code != errc::ok) out += fmt::format(" code={}", name_of(it.code));
  if (!it.replica.empty()) out += " replica=" + it.replica;
  out += fmt::format(" prompt={} output={}", it.prompt_tokens, it.output_tokens);
  if (it.seed) out += fmt::format(" seed={}", *it.seed);
  out += fmt::format(" total_ms={:.1f}", ms(it.total_us));
  if (it.asked_text) out += " asked=" + in_quotes(*it.asked_text);
  return out;
}

std::vector<log_field> log_fields_of(const ended_request& it) {
  std::vector<log_field> out{{"request_id", it.id}, {"finish_reason", it.finish}};
  if (it.code != errc::ok) out.emplace_back("code", std::string(name_of(it.code)));
  if (!it.replica.empty()) out.emplace_back("replica", it.replica);
  add_names(out, {it.id, it.client_request_id, it.tenant, it.trace_id});
  out.emplace_back("prompt_tokens", it.prompt_tokens);
  out.emplace_back("completion_tokens", it.output_tokens);
  if (it.seed) out.emplace_back("seed", *it.seed);
  out.emplace_back("total_ms", ms(it.total_us));
  return out;
}

}  // namespace deepinfer
