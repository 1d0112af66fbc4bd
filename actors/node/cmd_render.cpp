#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "actors/node/text_command.hpp"
#include "runtime/text/chat_commands.hpp"

namespace deepinfer {

namespace {

/// The ids of a prompt are wanted where --ids is given; without it they are left out where the
/// tokenizer has no tokens for the template.
result<json::object> render_object(const json::value& request, const tokenizer* words,
                                   bool wants_ids) {
  auto done = render_command(request, words);
  if (!done && !wants_ids && words) return render_command(request, nullptr);
  return done;
}

result<int> render(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const tokenizer words, open_tokenizer(context, flags, true));
  const bool wants_ids = flags.is_on("ids");
  const auto answer = [&](const json::value& request) {
    return render_object(request, &words, wants_ids);
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
          .run = render};
}

command parse_command() {
  return {.name = "parse",
          .summary = "split a model's output into reasoning, content and tool calls",
          .positionals = "[FILE.json]",
          .positionals_max = 1,
          .flags = request_flags(),
          .run = parse};
}

}  // namespace deepinfer
