#include "runtime/http/response_parser.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "runtime/http/header_text.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t most_head_bytes = 64 << 10;
constexpr std::size_t most_line_bytes = 8 << 10;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

tl::unexpected<error> bad(std::string_view what, std::string_view found) {
  return fail(errc::invalid_argument,
              fmt::format("{}: found '{}'", what, found.substr(0, std::size_t{80})));
}

template <class Number>
bool read_number(std::string_view text, int base, Number& out) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return !text.empty() && read.ec == std::errc{} && read.ptr == text.data() + text.size();
}

}  // namespace

const std::string* response_parser::header(std::string_view name) const {
  return find_header(headers_, name);
}

void response_parser::give(std::string_view piece) {
  if (on_body_ && !piece.empty()) on_body_(piece);
}

result<std::size_t> response_parser::feed(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size() && part_ != part::done) {
    const auto rest = bytes.substr(at);
    if (part_ == part::body || part_ == part::chunk) {
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(left_, rest.size()));
      give(rest.substr(0, size));
      left_ -= size;
      at += size;
      if (left_ == 0) part_ = part_ == part::body ? part::done : part::chunk_end;
      continue;
    }
    if (part_ == part::to_end) {
      give(rest);
      return bytes.size();
    }
    const auto end = rest.find('\n');
    const auto size = end == std::string_view::npos ? rest.size() : end + 1;
    line_.append(rest.substr(0, size));
    at += size;
    if (line_.size() > (part_ == part::head ? most_head_bytes : most_line_bytes))
      return bad("a line of the answer is too long", line_);
    if (end == std::string_view::npos) continue;
    DI_TRY_VOID(take_line());
  }
  return at;
}

/// A line is complete: of the head, which grows until its empty line, or between chunks.
result<void> response_parser::take_line() {
  if (part_ == part::head) {
    if (line_.ends_with("\r\n\r\n") || line_.ends_with("\n\n") || line_ == "\r\n") {
      DI_TRY_VOID(read_head());
      line_.clear();
    }
    return {};
  }
  const auto line = trimmed(std::string_view(line_).substr(0, line_.size() - 1));
  if (part_ == part::chunk_size) {
    if (!read_number(trimmed(line.substr(0, line.find(';'))), 16, left_))
      return bad("the size of a chunk", line);
    part_ = left_ == 0 ? part::trailer : part::chunk;
  } else if (part_ == part::chunk_end) {
    if (!line.empty()) return bad("the end of a chunk", line);
    part_ = part::chunk_size;
  } else if (line.empty()) {
    part_ = part::done;  // behind the trailers
  }
  line_.clear();
  return {};
}

result<void> response_parser::read_head() {
  std::string_view rest = line_;
  const auto next_line = [&rest] {
    const auto end = rest.find('\n');
    const auto line = trimmed(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    return line;
  };
  const auto first = next_line();
  if (!first.starts_with("HTTP/1.") || first.size() < 12 ||
      !read_number(first.substr(9, 3), 10, status_))
    return bad("the first line of an answer", first);
  keeps_alive_ = first[7] == '1';
  headers_.clear();
  for (auto line = next_line(); !line.empty(); line = next_line()) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) return bad("a header line", line);
    headers_.push_back(
      {std::string(line.substr(0, colon)), std::string(trimmed(line.substr(colon + 1)))});
  }
  return begin_body();
}

result<void> response_parser::begin_body() {
  if (status_ >= 100 && status_ < 200) return {};  // the answer comes behind it
  if (const auto* connection = header("Connection"))
    keeps_alive_ = equal_ignoring_case(*connection, keeps_alive_ ? "close" : "keep-alive")
                     ? !keeps_alive_
                     : keeps_alive_;
  const auto* coding = header("Transfer-Encoding");
  const auto* length = header("Content-Length");
  if (!has_body_ || status_ == 204 || status_ == 304) {
    part_ = part::done;
  } else if (coding && equal_ignoring_case(*coding, "chunked")) {
    part_ = part::chunk_size;
  } else if (length) {
    if (!read_number(std::string_view(*length), 10, left_)) return bad("Content-Length", *length);
    part_ = left_ == 0 ? part::done : part::body;
  } else {
    part_ = part::to_end;
    keeps_alive_ = false;
  }
  return {};
}

result<void> response_parser::finish() {
  if (part_ == part::to_end) part_ = part::done;
  if (part_ == part::done) return {};
  return fail(errc::invalid_argument, part_ == part::head
                                        ? "the connection ended before an answer"
                                        : "the connection ended within an answer");
}

}  // namespace deepinfer
