#include "runtime/text/tool_calls.hpp"

#include "runtime/base/json.hpp"
#include "runtime/text/chat_prompt_writer.hpp"
#include "runtime/text/python_json.hpp"

namespace deepinfer {
namespace {

/// Depth of nesting up to which arguments are read as JSON; deeper ones are shown as one string.
constexpr std::size_t argument_depth = 128;

struct markup_names {
  std::string_view calls, invoke, parameter;
  std::string_view no_arguments;
};

markup_names names_of(chat_variant variant) {
  if (variant == chat_variant::v41) return {" calls", " invoke", " parameter", "\n"};
  return {"tool_calls", "invoke", "parameter", ""};
}

void write_tag(std::string_view open, std::string_view name, prompt_writer& prompt) {
  prompt.plain(open);
  prompt.special(chat_tokens::dsml);
  prompt.plain(name);
}

void write_parameter(std::string_view tag, std::string_view name, bool is_string,
                     std::string_view value, prompt_writer& prompt) {
  write_tag("<", tag, prompt);
  prompt.plain(" name=\"");
  prompt.plain(name);
  prompt.plain(is_string ? "\" string=\"true\">" : "\" string=\"false\">");
  prompt.plain(value);
  write_tag("</", tag, prompt);
  prompt.plain(">\n");
}

void write_arguments(std::string_view arguments, const markup_names& names, json_numbers numbers,
                     prompt_writer& prompt) {
  const auto parsed = parse_json(arguments, argument_depth);
  if (!parsed || !parsed->is_object())
    return write_parameter(names.parameter, "arguments", true, arguments, prompt);
  if (parsed->get_object().empty()) return prompt.plain(names.no_arguments);
  for (const auto& [key, value] : parsed->get_object()) {
    if (const auto* text = value.if_string()) {
      write_parameter(names.parameter, key, true, *text, prompt);
    } else {
      write_parameter(names.parameter, key, false, python_json(value, numbers), prompt);
    }
  }
}

}  // namespace

void write_calls_opening(chat_variant variant, prompt_writer& prompt) {
  prompt.plain("\n\n");
  write_tag("<", names_of(variant).calls, prompt);
  prompt.plain(">\n");
}

void write_tool_calls(const std::vector<tool_call>& calls, chat_variant variant,
                      prompt_writer& prompt) {
  if (calls.empty()) return;
  const auto names = names_of(variant);
  write_calls_opening(variant, prompt);
  for (const auto& call : calls) {
    write_tag("<", names.invoke, prompt);
    prompt.plain(" name=\"");
    prompt.plain(call.name);
    prompt.plain("\">\n");
    write_arguments(call.arguments, names, json_numbers_of(variant), prompt);
    write_tag("</", names.invoke, prompt);
    prompt.plain(">\n");
  }
  write_tag("</", names.calls, prompt);
  prompt.plain(">");
}

}  // namespace deepinfer
