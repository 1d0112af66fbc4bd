#include "runtime/http/refused_fields.hpp"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr std::string_view constraint =
  R"(is not supported yet, "response_format": {"type": "json_object"} is)";
constexpr std::string_view not_yet = "is not supported yet";
constexpr std::string_view old_name = "is not supported, tools and tool_choice are";
constexpr std::string_view text_only = "only text is supported";

/// `more`: what means nothing either.
refused_field row(std::string_view name, std::string_view why, const json::array& more = {}) {
  refused_field out{name, why, {nullptr, false, "", json::array{}}};
  out.accepted.insert(out.accepted.end(), more.begin(), more.end());
  return out;
}

std::vector<refused_field> make_rows() {
  const json::array nothing(1, json::object{});
  const json::array text(1, json::array(1, "text"));
  return {
    // An empty schema asks for something: any JSON.
    row("guided_json", constraint),
    row("json_schema", constraint),
    row("guided_regex", constraint, nothing),
    row("guided_choice", constraint, nothing),
    row("guided_grammar", constraint, nothing),
    row("structured_outputs", constraint, nothing),
    row("structural_tag", constraint, nothing),
    row("grammar", constraint, nothing),
    row("regex", constraint, nothing),
    row("ebnf", constraint, nothing),
    row("bad_words", not_yet, nothing),
    row("allowed_token_ids", not_yet, nothing),
    row("logit_processors", not_yet, nothing),
    row("logits_processors", not_yet, nothing),
    row("custom_logit_processor", not_yet, nothing),
    row("use_beam_search", not_yet),
    row("prediction", not_yet, nothing),
    row("prompt_logprobs", not_yet),
    row("truncate_prompt_tokens", not_yet),
    row("chat_template", not_yet),
    row("documents", not_yet),
    // Without functions there is none to call or not to call.
    row("functions", old_name),
    row("function_call", old_name, {"auto", "none"}),
    row("modalities", text_only, text),
    row("audio", text_only, nothing),
    // Its empty object asks for a search with the usual options.
    row("web_search_options", not_yet),
  };
}

}  // namespace

const std::vector<refused_field>& refused_fields() {
  static const auto rows = make_rows();
  return rows;
}

result<void> refuse_fields(json_fields& body) {
  for (const auto& field : refused_fields()) {
    const auto* value = body.find(field.name);
    if (value &&
        std::find(field.accepted.begin(), field.accepted.end(), *value) == field.accepted.end())
      return body.failure(field.name, field.why);
  }
  return {};
}

}  // namespace deepinfer
