#include "runtime/text/output_parser_calls.hpp"

#include <algorithm>

#include "runtime/base/trim.hpp"
#include "runtime/text/chat_prompt_writer.hpp"
#include "runtime/text/python_json.hpp"

namespace deepinfer {
namespace {

/// A tag longer than this is malformed: keeps the memory of a model gone wild bounded.
constexpr std::size_t longest_tag = 16384;

/// True where `>` ends the tag: its quotes are even, or one of them closes the last attribute.
bool is_whole_tag(std::string_view tag) {
  const auto quotes = std::count(tag.begin(), tag.end(), '"');
  return quotes % 2 == 0 || (tag.ends_with('"') && !tag.ends_with("=\""));
}

}  // namespace

void calls_parser::byte(char c) {
  switch (state_) {
  case state::between: return between_byte(c);
  case state::tag: return tag_byte(c);
  case state::string_value:
  case state::json_value: return value_byte(c);
  case state::ended: return;
  }
}

void calls_parser::marker() {
  switch (state_) {
  case state::between:
    if (angle_ > 0) open_tag(angle_ == 2);
    return;
  case state::tag:  // malformed; perhaps a new tag begins in it
    if (tag_.ends_with("</")) return open_tag(true);
    if (tag_.ends_with("<")) return open_tag(false);
    state_ = state::between;
    angle_ = 0;
    return;
  case state::string_value:
  case state::json_value:
    if (angle_ == 2) {
      if (state_ == state::string_value) sink_->add_arguments("\"");
      return open_tag(true);
    }
    if (angle_ == 1) value_text("<");
    angle_ = 0;
    value_text(chat_tokens::dsml);
    return;
  case state::ended: return;
  }
}

void calls_parser::finish() {
  if (state_ != state::string_value && state_ != state::json_value) return;
  if (angle_ > 0) value_text(angle_ == 2 ? "</" : "<");
  angle_ = 0;
}

void calls_parser::between_byte(char c) {
  angle_ = c == '<' ? 1 : (c == '/' && angle_ == 1) ? 2 : 0;
}

void calls_parser::open_tag(bool closing) {
  state_ = state::tag;
  closing_ = closing;
  angle_ = 0;
  tag_.clear();
}

void calls_parser::tag_byte(char c) {
  if (c == '>' && is_whole_tag(tag_)) return end_tag();
  tag_ += c;
  if (c == '\n' || tag_.size() > longest_tag) {
    state_ = state::between;
    angle_ = 0;
  }
}

void calls_parser::end_tag() {
  state_ = state::between;
  angle_ = 0;
  const auto text = trimmed(tag_, " ");
  const auto name_end = std::min(text.find(' '), text.size());
  const auto name = text.substr(0, name_end);
  const auto attributes = text.substr(name_end);
  if (closing_) return end_closing_tag(name);
  if (name == "invoke") return begin_invoke(attributes);
  if (name == "parameter") return begin_parameter(attributes);
}

void calls_parser::end_closing_tag(std::string_view name) {
  const bool ends_block = name == "calls" || name == "tool_calls";
  if (ends_block || name == "invoke") end_call();
  if (ends_block) state_ = state::ended;
}

void calls_parser::begin_invoke(std::string_view attributes) {
  constexpr std::string_view opening = "name=\"";
  const auto at = attributes.find(opening);
  if (at == std::string_view::npos) return;
  const auto name = attributes.substr(at + opening.size());
  end_call();
  call_open_ = has_calls_ = true;
  has_arguments_ = key_waits_ = false;
  sink_->begin_call(name.substr(0, std::min(name.find('"'), name.size())));
}

void calls_parser::begin_parameter(std::string_view attributes) {
  constexpr std::string_view opening = "name=\"";
  constexpr std::string_view type = "\" string=\"";
  const auto at = attributes.find(opening);
  if (!call_open_ || at == std::string_view::npos) return;
  auto key = attributes.substr(at + opening.size());
  std::string_view is_string = "true";
  if (const auto middle = key.find(type); middle != std::string_view::npos) {
    is_string = key.substr(middle + type.size());
    is_string = is_string.substr(0, std::min(is_string.find('"'), is_string.size()));
    key = key.substr(0, middle);
  } else {
    key = key.substr(0, std::min(key.find('"'), key.size()));
  }
  if (!key_waits_) waiting_key_ = key;
  key_waits_ = is_string != "true" && is_string != "false";
  if (key_waits_) return;
  std::string start = has_arguments_ ? ", \"" : "{\"";
  append_json_escaped(waiting_key_, start);
  start += is_string == "true" ? "\": \"" : "\": ";
  has_arguments_ = true;
  sink_->add_arguments(start);
  state_ = is_string == "true" ? state::string_value : state::json_value;
}

void calls_parser::end_call() {
  if (!call_open_) return;
  sink_->add_arguments(has_arguments_ ? "}" : "{}");
  call_open_ = false;
}

void calls_parser::value_byte(char c) {
  if (c == '<') {
    if (angle_ > 0) value_text(angle_ == 2 ? "</" : "<");
    angle_ = 1;
    return;
  }
  if (c == '/' && angle_ == 1) {
    angle_ = 2;
    return;
  }
  if (angle_ > 0) value_text(angle_ == 2 ? "</" : "<");
  angle_ = 0;
  value_text({&c, 1});
}

void calls_parser::value_text(std::string_view text) {
  if (state_ == state::json_value) return sink_->add_arguments(text);
  std::string escaped;
  append_json_escaped(text, escaped);
  sink_->add_arguments(escaped);
}

}  // namespace deepinfer
