#include "runtime/http/metrics_text.hpp"

#include <algorithm>

namespace deepinfer {
namespace {

/// The metric a line is of: "# HELP name ...", "# TYPE name ...", "name{...} value".
std::string_view name_in(std::string_view line) {
  if (line.starts_with("# ")) {
    const auto begin = line.find(' ', 2);
    if (begin == line.npos) return {};
    line = line.substr(begin + 1);
  }
  return line.substr(0, line.find_first_of(" {"));
}

void append_lines(std::string& out, std::string_view text, bool of_http) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool is_http = name_in(line).find("http_requests_") != std::string_view::npos;
    if (line.empty() || is_http != of_http) continue;
    out += line;
    out += '\n';
  }
}

}  // namespace

std::string merged_metrics(std::string_view node, std::string_view own) {
  std::string out;
  out.reserve(node.size() + 4096);
  append_lines(out, node, false);
  append_lines(out, own, true);
  return out;
}

}  // namespace deepinfer
