#include "runtime/http/answer_writer.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "runtime/http/header_text.hpp"

namespace deepinfer {
namespace {

/// Headers that belong to the connection and not to the handler.
bool is_ours(std::string_view name) {
  constexpr std::array ours{
    "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Date", "Server"};
  return std::any_of(ours.begin(), ours.end(),
                     [&](const char* our) { return equal_ignoring_case(name, our); });
}

bool has_content(int status) {
  return status >= 200 && status != 204 && status != 304;
}

}  // namespace

void outgoing::clear() {
  before.clear();
  payload.clear();
  after = {};
  sent = 0;
}

std::size_t outgoing::payload_left() const {
  if (sent <= before.size()) return payload.size();
  return payload.size() - std::min(payload.size(), sent - before.size());
}

std::array<std::string_view, 3> outgoing::rest() const {
  std::array<std::string_view, 3> parts{before, payload, after};
  auto gone = sent;
  for (auto& part : parts) {
    const auto cut = std::min(gone, part.size());
    part.remove_prefix(cut);
    gone -= cut;
  }
  return parts;
}

void answer_writer::write_head(const http_response& head, bool is_whole, const answer_facts& facts,
                               std::string& out) {
  const auto to = std::back_inserter(out);
  const bool is_known_length = is_whole || !has_content(head.status);
  has_body_ = !form_.is_head && has_content(head.status);
  is_chunked_ = !is_known_length && !form_.is_http_10;
  const bool asks_to_close =
    std::any_of(head.headers.begin(), head.headers.end(), [](const http_header& line) {
      return equal_ignoring_case(line.name, "Connection") && has_token(line.value, "close");
    });
  form_.keep_alive =
    form_.keep_alive && facts.keep_alive && !asks_to_close && (is_known_length || is_chunked_);
  // The version is the server's; a client of 1.0 is not sent what it does not know.
  fmt::format_to(to, "HTTP/1.1 {} {}\r\nServer: {}\r\nDate: {}\r\n", head.status,
                 reason_of(head.status), facts.server_name, facts.date);
  for (const auto& [name, value] : head.headers)
    if (is_header_name(name) && !is_ours(name))
      fmt::format_to(to, "{}: {}\r\n", name, clean_header_value(value));
  if (is_chunked_)
    out += "Transfer-Encoding: chunked\r\n";
  else if (is_known_length && has_content(head.status))
    fmt::format_to(to, "Content-Length: {}\r\n", head.body.size());
  if (!form_.keep_alive)
    out += "Connection: close\r\n";
  else if (facts.idle_timeout_s > 0)
    fmt::format_to(to, "Connection: keep-alive\r\nKeep-Alive: timeout={}\r\n",
                   facts.idle_timeout_s);
  else
    out += "Connection: keep-alive\r\n";
  out += "\r\n";
}

void answer_writer::frame(reply_part& part, const answer_facts& facts, outgoing& out) {
  if (part.head) {
    const bool is_whole = part.is_whole || part.is_dropped;
    write_head(*part.head, is_whole, facts, out.before);
    if (is_whole && has_body_) out.payload = std::move(part.head->body);
  }
  is_complete_ = part.is_whole || part.is_dropped || part.is_end || part.is_cut;
  if (part.is_cut) {
    form_.keep_alive = false;
    must_reset_ = has_body_ && !is_chunked_;
  }
  if (!has_body_ || part.is_whole || part.is_dropped) return;
  out.payload.swap(part.piece);
  if (!is_chunked_) return;
  if (!out.payload.empty()) {
    fmt::format_to(std::back_inserter(out.before), "{:x}\r\n", out.payload.size());
    out.after = part.is_end ? "\r\n0\r\n\r\n" : "\r\n";
  } else if (part.is_end) {
    out.after = "0\r\n\r\n";
  }
}

}  // namespace deepinfer
