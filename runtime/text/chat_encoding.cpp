#include "runtime/text/chat_encoding.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "runtime/text/chat_prompt_writer.hpp"
#include "runtime/text/data/chat_texts.hpp"
#include "runtime/text/python_json.hpp"
#include "runtime/text/tokenizer.hpp"
#include "runtime/text/tool_calls.hpp"

namespace deepinfer {
namespace {

using messages = std::vector<const chat_message*>;

std::string tool_line(const tool_definition& tool) {
  std::string line = "{\"name\": \"";
  append_json_escaped(tool.name, line);
  line += "\", \"description\": \"";
  append_json_escaped(tool.description, line);
  line += "\", \"parameters\": " + tool.parameters + "}";
  return line;
}

std::string tool_lines(const std::vector<tool_definition>& tools, bool with_deferred) {
  std::string lines;
  for (const auto& tool : tools) {
    if (tool.deferred && !with_deferred) continue;
    if (!lines.empty()) lines += '\n';
    lines += tool_line(tool);
  }
  return lines;
}

/// What the first system text ends with: tools of the request, then the form of the answer.
void write_request_part(const chat_conversation& c, chat_variant variant, prompt_writer& out) {
  const bool v41 = variant == chat_variant::v41;
  if (!c.tools.empty()) {
    out.fixed(v41 ? chat_texts::tool_preamble_v41 : chat_texts::tool_preamble_v4);
    out.plain(tool_lines(c.tools, false));
    out.fixed(chat_texts::tool_closing);
  }
  switch (c.response) {
  case response_shape::free: return;
  case response_shape::schema:
    out.fixed(chat_texts::response_schema);
    out.plain(c.response_schema);
    return;
  case response_shape::json_object:
    if (!v41) return out.fixed(chat_texts::response_json_v4);
    out.fixed(chat_texts::response_schema);
    out.plain("{\"type\": \"json_object\"}");
    return;
  }
}

void write_tool_result(const chat_message& result, prompt_writer& out) {
  out.plain("<tool_result>");
  out.plain(result.content);
  out.plain("</tool_result>");
}

/// Tool results of one group, in the order of the calls they answer. A result whose id is unknown
/// goes to the front (V4.1) or keeps its place (V4); of one id given twice, V4 sorts only the
/// first.
messages in_call_order(const messages& results, const chat_message* caller, chat_variant variant) {
  if (!caller) return results;
  std::vector<bool> used(caller->calls.size());
  std::vector<std::size_t> keys;
  for (const auto* result : results) {
    std::size_t key = variant == chat_variant::v41 ? 0 : keys.size();
    for (std::size_t i = 0; i < caller->calls.size(); ++i) {
      if (caller->calls[i].id != result->call_id) continue;
      if (variant == chat_variant::v4 && used[i]) continue;
      used[i] = true;
      key = i;
      break;
    }
    keys.push_back(key);
  }
  std::vector<std::size_t> order(results.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  messages sorted;
  for (const auto i : order) sorted.push_back(results[i]);
  return sorted;
}

const std::string empty_text;

/// Both variants: BOS, the head (effort and system text), then the messages in turn.
class renderer {
public:
  renderer(const chat_conversation& conversation, chat_variant variant, const effort_scale& scale)
    : c_(conversation),
      variant_(variant),
      scale_(scale) {}

  rendered_prompt run() {
    out_.special(chat_tokens::begin);
    const auto rest = v41() ? write_head_v41() : write_head_v4();
    for (std::size_t i = 0; i < rest.size();) i = write_message(rest, i);
    const bool open = !c_.messages.empty() && c_.messages.back().prefix;
    if (!open) {
      out_.special(chat_tokens::assistant);
      out_.special(c_.thinking ? chat_tokens::think : chat_tokens::think_end);
    }
    if (c_.calls_required && !c_.tools.empty()) write_calls_opening(variant_, out_);
    return out_.take();
  }

private:
  bool v41() const { return variant_ == chat_variant::v41; }
  bool has_request_part() const { return !c_.tools.empty() || c_.response != response_shape::free; }
  bool starts_with_system() const {
    return !c_.messages.empty() && c_.messages.front().role == chat_role::system;
  }

  /// V4.1: one marker for effort and first system text. Gives the messages that are left.
  messages write_head_v41() {
    const chat_message* first = starts_with_system() ? &c_.messages.front() : nullptr;
    const auto& content = first ? first->content : empty_text;
    const bool has_tools = first && !first->tools.empty();
    const bool anything = !c_.messages.empty() || has_request_part();
    const bool effort = c_.thinking && anything;
    if (effort || !content.empty() || has_request_part() || has_tools)
      out_.special(chat_tokens::system);
    if (effort) {
      out_.fixed(chat_texts::effort_v41_before);
      const auto level = scale_[static_cast<std::size_t>(c_.effort)];
      out_.plain(fmt::format("{}", c_.effort_number.value_or(level)));
      out_.fixed(chat_texts::effort_v41_after);
    }
    out_.plain(content);
    write_request_part(c_, variant_, out_);
    if (first) write_updated_tools(*first);
    messages rest;
    for (const auto& message : c_.messages)
      if (&message != first) rest.push_back(&message);
    return rest;
  }

  /// V4: no marker; all system texts come together at the front.
  messages write_head_v4() {
    if (c_.thinking && c_.effort == effort_level::max) out_.fixed(chat_texts::effort_v4_max);
    if (c_.thinking && (c_.effort == effort_level::high || c_.effort == effort_level::xhigh))
      out_.fixed(chat_texts::effort_v4_high);
    messages rest;
    bool first = true;
    for (const auto& message : c_.messages) {
      if (message.role != chat_role::system) {
        rest.push_back(&message);
      } else if (!message.content.empty()) {
        if (!first) out_.plain("\n\n");
        first = false;
        out_.plain(message.content);
      }
    }
    write_request_part(c_, variant_, out_);
    return rest;
  }

  void write_updated_tools(const chat_message& message) {
    if (message.tools.empty()) return;
    out_.fixed(chat_texts::updated_tools);
    out_.plain(tool_lines(message.tools, true));
  }

  /// Writes message i, with those that merge into it; gives the index after them.
  std::size_t write_message(const messages& list, std::size_t i) {
    const auto& message = *list[i];
    switch (message.role) {
    case chat_role::system:
      out_.special(chat_tokens::system);
      out_.plain(message.content);
      write_updated_tools(message);
      return i + 1;
    case chat_role::latest_reminder: {
      out_.special(chat_tokens::reminder);
      out_.plain(message.content);
      std::size_t next = i + 1;
      if (v41())  // of reminders in a row, V4.1 shows the first only
        while (next < list.size() && list[next]->role == chat_role::latest_reminder) ++next;
      return next;
    }
    case chat_role::user:
    case chat_role::tool: return v41() ? write_group_v41(list, i) : write_group_v4(list, i);
    case chat_role::assistant: write_assistant(message); return i + 1;
    }
    return i + 1;
  }

  /// V4.1: adjacent user texts and tool results are one turn; results are sorted among their
  /// places.
  std::size_t write_group_v41(const messages& list, std::size_t begin) {
    std::size_t end = begin;
    messages results;
    for (; end < list.size(); ++end) {
      if (list[end]->role == chat_role::tool) {
        results.push_back(list[end]);
      } else if (list[end]->role != chat_role::user) {
        break;
      }
    }
    results = in_call_order(results, caller_, variant_);
    out_.special(chat_tokens::user);
    auto next_result = results.begin();
    for (std::size_t i = begin; i < end; ++i) {
      if (i > begin) out_.plain("\n\n");
      if (list[i]->role == chat_role::tool) {
        write_tool_result(**next_result++, out_);
      } else {
        out_.plain(list[i]->content);
      }
    }
    return end;
  }

  /// V4: tool results, then user texts, empty ones left out; a result after a text is a new turn.
  std::size_t write_group_v4(const messages& list, std::size_t begin) {
    std::size_t at = begin;
    messages results;
    for (; at < list.size() && list[at]->role == chat_role::tool; ++at) results.push_back(list[at]);
    results = in_call_order(results, caller_, variant_);
    const bool has_text = at < list.size() && list[at]->role == chat_role::user;
    std::string text;
    for (; at < list.size() && list[at]->role == chat_role::user; ++at) {
      if (!text.empty() && !list[at]->content.empty()) text += "\n\n";
      text += list[at]->content;
    }
    out_.special(chat_tokens::user);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (i > 0) out_.plain("\n\n");
      write_tool_result(*results[i], out_);
    }
    if (has_text && !results.empty()) out_.plain("\n\n");
    out_.plain(text);
    return at;
  }

  /// Thoughts of the past are kept where tools are in play or the message is to be continued.
  bool keeps_reasoning(const chat_message& message) const {
    if (!v41())
      return (!c_.tools.empty() || message.prefix) && (c_.thinking || !message.reasoning.empty());
    if (!c_.thinking) return false;
    const bool opens = &message == &c_.messages.front() && !has_request_part();
    return !c_.tools.empty() || (message.prefix && !opens);
  }

  void write_assistant(const chat_message& message) {
    if (!message.calls.empty()) caller_ = &message;
    const bool is_last = &message == &c_.messages.back();
    const bool has_answer = !message.content.empty() || (v41() && !message.calls.empty());
    out_.special(chat_tokens::assistant);
    if (keeps_reasoning(message)) {
      out_.special(chat_tokens::think);
      out_.plain(message.reasoning);
      if (!message.prefix || has_answer) out_.special(chat_tokens::think_end);
    } else {
      out_.special(chat_tokens::think_end);
    }
    out_.plain(message.content);
    write_tool_calls(message.calls, variant_, out_);
    const bool open = message.prefix && (v41() || is_last);
    if (!open) out_.special(chat_tokens::end);
  }

  const chat_conversation& c_;
  chat_variant variant_;
  effort_scale scale_;
  prompt_writer out_;
  const chat_message* caller_ = nullptr;  ///< the last assistant message with calls
};

}  // namespace

rendered_prompt render_chat(const chat_conversation& conversation, chat_variant variant,
                            const effort_scale& scale) {
  return renderer(conversation, variant, scale).run();
}

result<std::vector<token_id>> encode_prompt(const rendered_prompt& prompt,
                                            const tokenizer& vocabulary) {
  std::vector<token_id> ids;
  const std::string_view text = prompt.text;
  std::size_t at = 0;
  const auto plain_until = [&](std::size_t end) {
    if (end > at) vocabulary.encode_into(ids, text.substr(at, end - at), specials::off);
    at = end;
  };
  for (const auto& range : prompt.special) {
    plain_until(range.begin);
    const auto token = text.substr(range.begin, range.end - range.begin);
    const auto id = vocabulary.id_of(token);
    if (!id)
      return fail(errc::invalid_argument,
                  fmt::format("the tokenizer has no token {}, which the chat format needs", token));
    ids.push_back(*id);
    at = range.end;
  }
  plain_until(text.size());
  return ids;
}

}  // namespace deepinfer
