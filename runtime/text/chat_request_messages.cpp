#include "runtime/text/chat_request_messages.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "runtime/base/quoted.hpp"
#include "runtime/text/python_json.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t most_parts = 4096;
constexpr std::size_t most_calls = 4096;
constexpr std::size_t most_tools = 4096;

struct role_row {
  std::string_view name;
  chat_role role;
};
constexpr std::array role_rows{
  role_row{"system", chat_role::system}, role_row{"developer", chat_role::system},
  role_row{"user", chat_role::user},     role_row{"assistant", chat_role::assistant},
  role_row{"tool", chat_role::tool},     role_row{"latest_reminder", chat_role::latest_reminder},
};

result<chat_role> read_role(json_fields& message) {
  DI_TRY(const auto name, message.required_text("role"));
  for (const auto& row : role_rows)
    if (row.name == name) return row.role;
  return message.wrong("role", *message.find("role"),
                       "system, developer, user, assistant, tool or latest_reminder");
}

/// One part of a content list, as text. V4 shows images as unsupported; for V4.1 they are refused.
result<std::string> read_part(json_fields& part, chat_variant variant) {
  DI_TRY(const auto type, part.required_text("type"));
  if (type == "text") return part.required_text("text");
  if (type != "image_url" && type != "file")
    return part.wrong("type", *part.find("type"), "\"text\"");
  if (variant == chat_variant::v41)
    return part.failure("type", fmt::format("{} parts are not supported, only text is", type));
  return std::string("[Unsupported Image]");
}

/// Content as one text; parts are joined with a blank line. Nothing where it is null or absent.
result<std::optional<std::string>> read_content(json_fields& message, chat_variant variant) {
  const auto* content = message.find("content");
  if (!content) return std::optional<std::string>{};
  if (content->is_string()) return message.text("content");
  if (!content->is_array())
    return message.wrong("content", *content, "a string or a list of parts");
  DI_TRY(auto parts, message.objects("content", most_parts));
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    DI_TRY(const auto part, read_part(parts[i], variant));
    if (i > 0) text += "\n\n";
    text += part;
  }
  return std::optional<std::string>(std::move(text));
}

result<std::vector<tool_call>> read_calls(json_fields& message) {
  std::vector<tool_call> calls;
  DI_TRY(auto list, message.objects("tool_calls", most_calls));
  for (auto& item : list) {
    tool_call call;
    DI_TRY(call.id, item.required_text("id"));
    DI_TRY(const auto type, item.required_text("type"));
    if (type != "function") return item.wrong("type", *item.find("type"), "\"function\"");
    DI_TRY(auto function, item.required_object("function"));
    DI_TRY(call.name, function.required_text("name"));
    DI_TRY(call.arguments, function.required_text("arguments"));
    calls.push_back(std::move(call));
  }
  return calls;
}

result<chat_message> read_message(json_fields& fields, chat_variant variant) {
  chat_message message;
  DI_TRY(message.role, read_role(fields));
  DI_TRY_VOID(fields.text("name"));
  DI_TRY(auto content, read_content(fields, variant));
  message.content = content.value_or("");
  if (message.role != chat_role::assistant) {
    if (!content) return fields.failure("content", "a string or a list of parts is missing");
    if (message.role == chat_role::tool) {
      DI_TRY(message.call_id, fields.required_text("tool_call_id"));
    }
    return message;
  }
  DI_TRY(auto reasoning, fields.text("reasoning_content"));
  message.reasoning = std::move(reasoning).value_or("");
  DI_TRY(message.calls, read_calls(fields));
  DI_TRY(message.prefix, fields.flag("prefix", false));
  if (fields.find("tool_calls") && message.calls.empty())
    return fields.failure("tool_calls", "found an empty list, expected at least one call");
  if (!content && message.calls.empty())
    return fields.failure("content", "an assistant message needs content or tool_calls");
  return message;
}

/// Follows the calls of an assistant message and the results that answer them.
class call_ledger {
public:
  result<void> see(const chat_message& message, const json_fields& fields) {
    if (message.role == chat_role::tool) return answer(message, fields);
    DI_TRY_VOID(all_answered(fields));
    open_.clear();
    for (const auto& call : message.calls) {
      if (is_open(call.id))
        return fields.failure("tool_calls", fmt::format("id {} comes twice", quoted(call.id)));
      open_.push_back(call.id);
    }
    return {};
  }

  result<void> all_answered(const json_fields& place) const {
    if (open_.empty()) return {};
    return place.failure("role", fmt::format("tool call {} has no tool message that answers it",
                                             quoted(open_.front())));
  }

private:
  bool is_open(const std::string& id) const {
    return std::find(open_.begin(), open_.end(), id) != open_.end();
  }

  result<void> answer(const chat_message& message, const json_fields& fields) {
    const auto found = std::find(open_.begin(), open_.end(), message.call_id);
    if (open_.empty())
      return fields.failure("role", "a tool message must answer a preceding tool call");
    if (found == open_.end())
      return fields.failure(
        "tool_call_id", fmt::format("no open tool call has the id {}", quoted(message.call_id)));
    open_.erase(found);
    return {};
  }

  std::vector<std::string> open_;
};

}  // namespace

result<std::vector<chat_message>> read_messages(json_fields& body, chat_variant variant,
                                                bool thinking, std::size_t most) {
  if (!body.find("messages")) return body.failure("messages", "a list of messages is missing");
  DI_TRY(auto list, body.objects("messages", most));
  if (list.empty()) return body.failure("messages", "is empty");
  std::vector<chat_message> messages;
  call_ledger ledger;
  for (std::size_t i = 0; i < list.size(); ++i) {
    DI_TRY(auto message, read_message(list[i], variant));
    if (message.prefix && i + 1 < list.size())
      return list[i].failure("prefix", "only the last message can be continued");
    DI_TRY_VOID(ledger.see(message, list[i]));
    if (!thinking) message.reasoning.clear();
    if (message.role == chat_role::system && message.content.empty()) continue;
    messages.push_back(std::move(message));
  }
  DI_TRY_VOID(ledger.all_answered(list.back()));
  return messages;
}

result<std::vector<tool_definition>> read_loose_tools(json_fields& holder, chat_variant variant) {
  std::vector<tool_definition> tools;
  DI_TRY(auto list, holder.objects("tools", most_tools));
  for (auto& item : list) {
    tool_definition tool;
    DI_TRY(tool.name, item.required_text("name"));
    DI_TRY(const auto description, item.text("description"));
    tool.description = description.value_or("");
    if (const auto* schema = item.given("parameters"))
      tool.parameters = python_json(*schema, json_numbers_of(variant));
    DI_TRY(tool.deferred, item.flag("defer_loading", false));
    tools.push_back(std::move(tool));
  }
  return tools;
}

result<std::vector<chat_message>> read_loose_messages(json_fields& body, chat_variant variant,
                                                      std::size_t most) {
  std::vector<chat_message> messages;
  DI_TRY(auto list, body.objects("messages", most));
  for (auto& fields : list) {
    chat_message message;
    DI_TRY(message.role, read_role(fields));
    DI_TRY(auto content, read_content(fields, variant));
    message.content = std::move(content).value_or("");
    DI_TRY(auto reasoning, fields.text("reasoning_content"));
    message.reasoning = std::move(reasoning).value_or("");
    DI_TRY(message.calls, read_calls(fields));
    DI_TRY(auto call_id, fields.text("tool_call_id"));
    message.call_id = std::move(call_id).value_or("");
    DI_TRY(message.prefix, fields.flag("prefix", false));
    DI_TRY(message.tools, read_loose_tools(fields, variant));
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace deepinfer
