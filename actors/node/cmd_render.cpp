#include <fmt/format.h>

#include "actors/node.hpp"
#include "actors/node/commands.hpp"
#include "actors/node/text_command.hpp"
#include "runtime/http/openai_request.hpp"
#include "runtime/text/chat_commands.hpp"

namespace deepinfer {

namespace {

constexpr auto render_details =
  R"(FILE.json (- is standard input) holds a request of /v1/chat/completions or /render. "model" may
be left out or the model's own name, that of its directory: the prompt is then what a server of
it makes. DeepSeek-V4.1-Flash and DeepSeek-V4-Pro are taken too, with the defaults of DeepSeek's
API, where a request thinks unless it says otherwise.

Example:
  echo '{"messages": [{"role": "user", "content": "Hi"}]}' | deepinfer render -
)";

constexpr auto parse_details =
  R"(FILE.json (- is standard input) holds what a model has written and how to read it:
  "text" or "ids"    the output, without its prompt
  "mode"             an object: "start" is reasoning, content, reasoning_continuation,
                     content_continuation or tool_calls ("parse_start" of render); "tools": true
                     finds tool calls ("parse_tool_calls" of render), "json": true blanks what
                     stands around JSON; "stop" is a list of strings
  "finish"           why the output ended, "stop" where left out, or "length"

Example:
  echo '{"mode": {"start": "reasoning"}, "text": "So it is.</think>Noon."}' | deepinfer parse -
)";

/// Does a request mean the model that is there, as a request of a server does?
bool names_own(const json::object& request, const std::string& name) {
  const auto* model = request.if_contains("model");
  return !model || model->is_null() || *model == json::value(name);
}

/// A request of /render as the server of the model reads it; `via` and `options` are no fields of
/// that.
result<json::value> own_request(const json::object& request, const std::string& name) {
  json::value out = request;
  if (!request.contains("via") && !request.contains("options")) {
    json_fields fields(request);
    std::vector<std::string> ignored;
    DI_TRY(const auto chat, read_chat_body(fields, ignored));
    DI_TRY(out, parse_json(chat));
  }
  out.as_object()["model"] = name;
  return out;
}

/// The ids of a prompt are wanted where --ids is given; without it they are left out where the
/// tokenizer has no tokens for the template.
result<json::object> render_object(json::value request, const std::string& name,
                                   const tokenizer& words, bool wants_ids) {
  chat_request_options options;
  options.models.insert(options.models.begin(), {name, chat_variant::v41});
  if (const auto* fields = request.if_object(); fields && names_own(*fields, name)) {
    options.thinking_by_default = false;
    DI_TRY(request, own_request(*fields, name));
  }
  auto done = render_command(request, &words, options);
  if (!done && !wants_ids) return render_command(request, nullptr, options);
  return done;
}

result<int> render(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const tokenizer words, open_tokenizer(context, flags, true));
  // Beside --tokenizer no model has to be there.
  const auto name = served_name({}, text_model(context, flags).value_or("tiny-v41"));
  const bool wants_ids = flags.is_on("ids");
  const auto answer = [&](const json::value& request) {
    return render_object(request, name, words, wants_ids);
  };
  DI_TRY(const auto file, jsonl_file(flags));
  if (file) return answer_lines(context, *file, answer);
  return answer_file(context, flags, answer);
}

result<int> parse(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const tokenizer words, open_tokenizer(context, flags, true));
  const auto answer = [&](const json::value& request) { return parse_command(request, &words); };
  DI_TRY(const auto file, jsonl_file(flags));
  if (file) return answer_lines(context, *file, answer);
  return answer_file(context, flags, answer);
}

/// --json is there because the other commands have it; it changes nothing.
std::vector<flag> request_flags() {
  auto flags = text_flags();
  flags.insert(flags.begin(), {.name = "json", .help = "one JSON object, as without this flag"});
  return flags;
}

}  // namespace

command render_command() {
  auto flags = request_flags();
  flags.insert(flags.begin(),
               {.name = "ids", .help = "fail where the prompt's ids cannot be given"});
  return {.name = "render",
          .summary = "print the exact prompt of a chat request, and its ids",
          .positionals = "[FILE.json]",
          .positionals_max = 1,
          .flags = std::move(flags),
          .details = render_details,
          .run = render};
}

command parse_command() {
  return {.name = "parse",
          .summary = "split a model's output into reasoning, content and tool calls",
          .positionals = "[FILE.json]",
          .positionals_max = 1,
          .flags = request_flags(),
          .details = parse_details,
          .run = parse};
}

}  // namespace deepinfer
