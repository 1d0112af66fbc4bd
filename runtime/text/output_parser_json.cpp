#include "runtime/text/output_parser_json.hpp"

#include <string_view>

namespace deepinfer {
namespace {

constexpr std::string_view opening_named = "```json\n";
constexpr std::string_view opening = "```\n";
constexpr std::string_view closing = "\n```";

}  // namespace

void json_output_filter::push(char c, std::string& out) {
  begun_ = true;
  switch (state_) {
  case state::before: return before(c, out);
  case state::bare: out += c; return;
  case state::fenced: return fenced(c, out);
  case state::after: return blank(out);
  }
}

void json_output_filter::finish(std::string& out) {
  if (held_.empty()) return;
  if (state_ == state::fenced) {
    out += held_;
  } else {
    blank(out);
  }
  held_.clear();
}

void json_output_filter::before(char c, std::string& out) {
  if (c == '{' || c == '[') {
    if (!held_.empty()) blank(out);
    held_.clear();
    state_ = state::bare;
    out += c;
    return;
  }
  held_ += c;
  while (!opening_named.starts_with(held_) && !opening.starts_with(held_)) {
    blank(out);
    held_.erase(0, 1);
  }
  if (held_ != opening_named && held_ != opening) return;
  held_.clear();
  state_ = state::fenced;
}

void json_output_filter::fenced(char c, std::string& out) {
  held_ += c;
  while (!closing.starts_with(held_)) {
    out += held_.front();
    held_.erase(0, 1);
  }
  if (held_ != closing) return;
  held_.clear();
  state_ = state::after;
  blanked_ = false;
}

void json_output_filter::blank(std::string& out) {
  if (!blanked_) out += ' ';
  blanked_ = true;
}

}  // namespace deepinfer
