#include "actors/node/text_command.hpp"

#include <limits>

#include <fmt/format.h>

#include "actors/node/standard_input.hpp"
#include "runtime/base/file.hpp"
#include "runtime/text/chat_commands.hpp"

namespace deepinfer {

namespace {

result<std::string> read_input(const std::string& file) {
  return file == "-" ? read_standard_input() : read_file(file);
}

/// A file that the command line names and that cannot be used is a usage error, exit code 2.
error as_usage(error problem) {
  problem.code = errc::bad_config;
  return problem;
}

}  // namespace

std::vector<flag> text_flags() {
  return {{.name = "tokenizer",
           .help = "directory that holds tokenizer.json, or that file",
           .value_name = "DIR",
           .default_text = "the model's"},
          {.name = "model",
           .help = "directory of a checkpoint",
           .value_name = "DIR",
           .default_text = "the embedded model"},
          {.name = "jsonl",
           .help = "answer each line of FILE, a JSON object, with a line; blank lines are skipped, "
                   "- is standard input",
           .value_name = "FILE"}};
}

result<std::string> text_model(const cli_context& context, const parsed_flags& flags) {
  engine_settings settings;
  const auto found = context.environment.find("DEEPINFER_MODEL");
  if (found != context.environment.end()) settings.model.path = found->second;
  if (const auto given = flags.text("model")) settings.model.path = *given;
  return model_directory(context, settings);
}

result<tokenizer> open_tokenizer(const cli_context& context, const parsed_flags& flags,
                                 bool is_v41) {
  auto place = flags.text("tokenizer");
  if (!place) {
    is_v41 = true;
    DI_TRY(place, text_model(context, flags));
  }
  auto opened = tokenizer::open(*place);
  if (!opened) {
    auto problem = std::move(opened).error();
    if (problem.code == errc::io_failed) problem.code = errc::bad_checkpoint;
    return tl::unexpected<error>(std::move(problem));
  }
  const auto words = is_v41 ? opened->as_v41() : *std::move(opened);
  for (const auto& warning : words.warnings()) warn(context, warning);
  return words;
}

result<std::optional<std::string>> jsonl_file(const parsed_flags& flags) {
  auto file = flags.text("jsonl");
  if (file && !flags.positionals.empty())
    return fail(errc::bad_config, fmt::format("found '{}' beside --jsonl {}, expected one of them",
                                              flags.positionals.front().substr(0, 100), *file));
  return file;
}

result<int> answer_lines(const cli_context& context, const std::string& file,
                         const object_command& answer) {
  const auto text = read_input(file);
  if (!text) return tl::unexpected<error>(as_usage(text.error()));
  for (std::size_t begin = 0; begin < text->size();) {
    const auto end = std::min(text->find('\n', begin), text->size());
    const auto line = std::string_view(*text).substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto request = parse_json(line);
    const auto done = request ? answer(*request) : tl::unexpected<error>(request.error());
    fmt::print(context.out, "{}\n", to_text(done ? *done : error_object(done.error())));
  }
  return 0;
}

result<int> answer_file(const cli_context& context, const parsed_flags& flags,
                        const object_command& answer) {
  if (flags.positionals.empty())
    return fail(errc::bad_config, "found no file, expected FILE.json, - or --jsonl FILE");
  const auto& file = flags.positionals.front();
  const auto text = read_input(file);
  if (!text) return tl::unexpected<error>(as_usage(text.error()));
  const auto request = parse_json(*text);
  const auto done = request ? answer(*request) : tl::unexpected<error>(request.error());
  if (!done) return tl::unexpected<error>(as_usage(error(done.error()).within(file)));
  fmt::print(context.out, "{}\n", to_text(*done));
  return 0;
}

result<std::string> text_argument(const parsed_flags& flags) {
  if (!flags.positionals.empty()) return flags.positionals.front();
  return read_standard_input();
}

result<std::vector<token_id>> ids_field(const json::value& request, std::string_view name) {
  const auto* object = request.if_object();
  const auto* field = object ? object->if_contains(name) : nullptr;
  const auto* list = field ? field->if_array() : nullptr;
  if (!list)
    return fail(errc::invalid_argument, fmt::format("{}: expected an array of ids", name),
                std::string(name));
  std::vector<token_id> ids;
  ids.reserve(list->size());
  for (const auto& entry : *list) {
    const auto* id = entry.if_int64();
    if (!id || *id < 0 || *id > std::numeric_limits<token_id>::max())
      return fail(errc::invalid_argument,
                  fmt::format("{}[{}]: found {}, expected a whole number of at least 0", name,
                              ids.size(), to_text(entry).substr(0, 40)),
                  std::string(name));
    ids.push_back(static_cast<token_id>(*id));
  }
  return ids;
}

}  // namespace deepinfer
