#include "runtime/text/output_parser_calls.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/json.hpp"
#include "runtime/base/trim.hpp"
#include "runtime/text/chat_prompt_writer.hpp"
#include "runtime/text/python_json.hpp"

namespace deepinfer {
namespace {

/// A tag longer than this is malformed: keeps the memory of a model gone wild bounded.
constexpr std::size_t longest_tag = 16384;

/// A value nested deeper than this is text, as it is in the arguments of an earlier turn.
constexpr std::size_t deepest_value = 128;

bool is_block(std::string_view tag_name) {
  return tag_name == "calls" || tag_name == "tool_calls";
}

/// What stands behind the `=` of an attribute: up to its second quote, without any up to a blank.
std::string_view attribute_value(std::string_view text) {
  if (!text.starts_with('"') && !text.starts_with('\'')) return text.substr(0, text.find(' '));
  return text.substr(1, text.substr(1).find(text.front()));
}

/// The value of the first attribute that begins with `assignment`, a name and `=`.
std::string_view attribute(std::string_view text, std::string_view assignment,
                           std::string_view otherwise) {
  const auto at = text.find(assignment);
  if (at == std::string_view::npos) return otherwise;
  return attribute_value(text.substr(at + assignment.size()));
}

/// True where `>` ends the tag: its quotes are even, or one of them closes the last attribute.
bool is_whole_tag(std::string_view tag) {
  const auto quotes = std::count(tag.begin(), tag.end(), '"');
  return quotes % 2 == 0 || (tag.ends_with('"') && !tag.ends_with("=\""));
}

}  // namespace

void calls_parser::byte(char c) {
  keep_unread({&c, 1});
  switch (state_) {
  case state::between: return between_byte(c);
  case state::tag: return tag_byte(c);
  case state::string_value:
  case state::json_value: return value_byte(c);
  case state::ended: return;
  }
}

void calls_parser::marker() {
  keep_unread(chat_tokens::dsml);
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
      end_value();
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
  if (is_worth_giving_back()) {
    if (state_ == state::tag) unread_.resize(tag_at_);
    return sink_->give_back(std::exchange(unread_, {}));
  }
  if (state_ != state::string_value && state_ != state::json_value) return;
  if (angle_ > 0) value_text(angle_ == 2 ? "</" : "<");
  angle_ = 0;
  if (!json_value_.empty()) sink_->add_arguments(json_value_);
}

void calls_parser::keep_unread(std::string_view text) {
  if (!any_call_ && state_ != state::ended) unread_ += text;
}

/// Whether anything but blanks stands between the block's opening tag and the last tag.
bool calls_parser::is_worth_giving_back() const {
  if (any_call_) return false;
  const bool in_tag = state_ == state::tag;
  const auto end = in_tag ? tag_at_ : unread_.size() - static_cast<std::size_t>(angle_);
  const auto inside = std::string_view(unread_).substr(0, end);
  return inside.find_first_not_of(" \n", inside_at_) != std::string_view::npos;
}

void calls_parser::between_byte(char c) {
  angle_ = c == '<' ? 1 : (c == '/' && angle_ == 1) ? 2 : 0;
}

void calls_parser::open_tag(bool closing) {
  state_ = state::tag;
  closing_ = closing;
  angle_ = 0;
  tag_.clear();
  if (!any_call_) tag_at_ = unread_.size() - chat_tokens::dsml.size() - (closing ? 2 : 1);
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
  const auto text = trimmed(tag_, " ");
  const auto name_end = std::min(text.find(' '), text.size());
  const auto name = text.substr(0, name_end);
  const auto attributes = text.substr(name_end);
  if (closing_) return end_closing_tag(name);
  state_ = state::between;
  angle_ = 0;
  if (is_block(name) && tag_at_ == 0) inside_at_ = unread_.size();
  if (name == "invoke") return begin_invoke(attributes);
  if (name == "parameter") return begin_parameter(attributes);
}

void calls_parser::end_closing_tag(std::string_view name) {
  const bool is_lost = is_block(name) && is_worth_giving_back();
  state_ = state::between;
  angle_ = 0;
  if (is_block(name) || name == "invoke") end_call();
  if (!is_block(name)) return;
  const auto text = std::exchange(unread_, {});
  tag_at_ = inside_at_ = 0;
  if (is_lost) return sink_->give_back(text);
  state_ = state::ended;
}

void calls_parser::begin_invoke(std::string_view attributes) {
  end_call();
  const auto quoted = attributes.find("name=\"");
  const auto name =
    attribute(attributes.substr(quoted == std::string_view::npos ? 0 : quoted), "name=", {});
  if (trimmed(name, " ").empty()) return;
  call_open_ = any_call_ = true;
  unread_.clear();
  has_arguments_ = key_waits_ = false;
  sink_->begin_call(name);
}

void calls_parser::begin_parameter(std::string_view attributes) {
  constexpr std::string_view opening = "name=\"";
  constexpr std::string_view type = "\" string=";
  if (!call_open_ || attributes.find("name=") == std::string_view::npos) return;
  auto key = attribute(attributes, "name=", {});
  auto is_string = attribute(attributes, "string=", "true");
  if (const auto at = attributes.find(opening); at != std::string_view::npos) {
    key = attributes.substr(at + opening.size());
    const auto middle = key.find(type);  // a name may hold quotes
    is_string = middle == std::string_view::npos
                  ? attribute(attributes.substr(0, at), "string=", "true")
                  : attribute_value(key.substr(middle + type.size()));
    key = key.substr(0, middle == std::string_view::npos ? key.find('"') : middle);
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

void calls_parser::end_value() {
  if (state_ == state::string_value) return sink_->add_arguments("\"");
  auto value = std::exchange(json_value_, {});
  if (!parse_json(value, deepest_value)) {
    std::string text = "\"";
    append_json_escaped(value, text);
    value = text + '"';
  }
  sink_->add_arguments(value);
}

void calls_parser::end_call() {
  if (!call_open_) return;
  sink_->add_arguments(has_arguments_ ? "}" : "{}");
  call_open_ = false;
  has_complete_call_ = true;
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
  if (state_ == state::json_value) {
    json_value_ += text;
    return;
  }
  std::string escaped;
  append_json_escaped(text, escaped);
  sink_->add_arguments(escaped);
}

}  // namespace deepinfer
