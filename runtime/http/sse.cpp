#include "runtime/http/sse.hpp"

namespace deepinfer {

void append_sse_event(std::string& out, std::string_view data) {
  for (;;) {
    const auto end = data.find_first_of("\r\n");
    out += "data: ";
    out += data.substr(0, end);
    out += '\n';
    if (end == std::string_view::npos) break;
    const bool is_pair = data[end] == '\r' && end + 1 < data.size() && data[end + 1] == '\n';
    data.remove_prefix(end + (is_pair ? 2 : 1));
  }
  out += '\n';
}

std::string sse_event(std::string_view data) {
  std::string event;
  event.reserve(data.size() + 8);
  append_sse_event(event, data);
  return event;
}

std::string sse_comment(std::string_view text) {
  std::string comment = ": ";
  for (const char c : text) comment += c == '\r' || c == '\n' ? ' ' : c;
  return comment + "\n\n";
}

std::string sse_done() {
  return "data: [DONE]\n\n";
}

}  // namespace deepinfer
