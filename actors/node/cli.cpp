#include "actors/node/cli.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/nearest.hpp"
#include "config/schema.hpp"
#include "runtime/base/log.hpp"

namespace deepinfer {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view program = "deepinfer";

void print_error(const cli_context& context, const error& problem) {
  const auto* red = context.err_is_coloured ? "\033[31m" : "";
  const auto* plain = context.err_is_coloured ? "\033[0m" : "";
  print_err("{}: {}error{}: {}\n", program, red, plain, problem.message);
}

bool asks_for_help(const std::string& argument) {
  return argument == "--help" || argument == "-h" || argument == "help";
}

/// The commands whose first word of two is `word`.
std::vector<command> commands_under(const std::vector<command>& commands, const std::string& word) {
  std::vector<command> found;
  for (const auto& c : commands)
    if (c.name.starts_with(word + " ")) found.push_back(c);
  return found;
}

/// The list of `commands`, all of the program or those that share the first word `group`.
std::string overview(const std::vector<command>& commands, const std::string& group = "") {
  const auto caller = group.empty() ? std::string(program) : fmt::format("{} {}", program, group);
  auto text = fmt::format("DeepInfer: an inference engine for DeepSeek-V4.1-Flash-class models.\n\n"
                          "Usage: {} COMMAND [FLAGS] [ARGUMENTS]\n\nCommands:\n",
                          caller);
  for (const auto& c : commands) text += fmt::format("  {:<18}{}\n", c.name, c.summary);
  text +=
    fmt::format("\n'{} COMMAND --help' lists the flags of a command.\n"
                "Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 model cannot be "
                "loaded, 4 port in use,\n"
                "5 device, 10 to 12 of run (a check failed, a file was skipped under --strict, "
                "the time was up),\n"
                "130 interrupted.\n",
                caller);
  return text;
}

/// The command that `args` starts with and how many words name it.
std::pair<const command*, std::size_t> find_command(const std::vector<command>& commands,
                                                    std::span<const std::string> args) {
  for (const auto& c : commands) {
    const auto words = static_cast<std::size_t>(1 + std::count(c.name.begin(), c.name.end(), ' '));
    if (words <= args.size() && c.name == fmt::format("{}", fmt::join(args.first(words), " ")))
      return {&c, words};
  }
  return {nullptr, 0};
}

tl::unexpected<error> unknown_command(const std::vector<command>& commands,
                                      std::span<const std::string> args) {
  // The first word of a two-word command asks for its second.
  std::vector<std::string> names, seconds;
  for (const auto& c : commands) names.push_back(c.name.substr(0, c.name.find(' ')));
  for (const auto& c : commands_under(commands, args.front()))
    seconds.push_back(c.name.substr(args.front().size() + 1));
  if (!seconds.empty()) {
    const auto found = args.size() > 1 ? fmt::format("unknown '{}'", args[1]) : "nothing";
    return fail(errc::bad_config, fmt::format("{}: found {}, expected one of {}", args.front(),
                                              found, fmt::join(seconds, ", ")));
  }
  return fail(errc::bad_config,
              fmt::format("unknown command '{}'{} (see '{} --help')", args.front(),
                          did_you_mean(args.front(), names), program));
}

/// Help on the command, or the group of commands, that `topic` starts with; on all without one.
result<std::string> help_on(const std::vector<command>& commands,
                            std::span<const std::string> topic) {
  if (topic.empty()) return overview(commands);
  if (const auto [named, words] = find_command(commands, topic); named)
    return help_text(command_line_of(*named));
  const auto group = commands_under(commands, topic.front());
  if (topic.size() == 1 && !group.empty()) return overview(group, topic.front());
  return unknown_command(commands, topic);
}

result<int> run(const cli_context& context, std::span<const std::string> args) {
  const auto commands = all_commands();
  if (args.empty()) {
    print_err("{}", overview(commands));
    return exit_code_of(errc::bad_config);
  }
  const bool is_group = !commands_under(commands, args.front()).empty();
  if (asks_for_help(args.front()) || (is_group && args.size() > 1 && asks_for_help(args[1]))) {
    DI_TRY(const auto text, help_on(commands, is_group ? args.first(1) : args.subspan(1)));
    fmt::print(context.out, "{}", text);
    return 0;
  }
  auto wanted = args;
  const std::vector<std::string> version{"version"};
  if (args.front() == "--version") wanted = version;
  const auto [chosen, words] = find_command(commands, wanted);
  if (!chosen) return unknown_command(commands, wanted);
  const auto line = command_line_of(*chosen);
  auto taken = *chosen;
  taken.uses_setting = nullptr;
  DI_TRY(const parsed_flags flags, parse_flags(command_line_of(taken), wanted.subspan(words)));
  if (flags.help) {
    fmt::print(context.out, "{}", help_text(line));
    return 0;
  }
  auto inner = context;
  inner.verbosity = flags.verbosity;
  configure_log(flags.verbosity > 0   ? severity::debug
                : flags.verbosity < 0 ? severity::error
                                      : severity::info,
                false);
  return chosen->run(inner, flags);
}

}  // namespace

command_line command_line_of(const command& c) {
  command_line line{.program = fmt::format("{} {}", program, c.name),
                    .summary = c.summary,
                    .positionals = c.positionals,
                    .positionals_min = c.positionals_min,
                    .positionals_max = c.positionals_max,
                    .flags = c.flags,
                    .details = c.details};
  if (!c.takes_settings) return line;
  line.flags.push_back({.name = "config",
                        .help = "YAML file of settings",
                        .value_name = "FILE",
                        .default_text = "none"});
  const auto is_own = [&c](const flag& it) {
    return std::any_of(c.flags.begin(), c.flags.end(),
                       [&it](const flag& own) { return own.name == it.name; });
  };
  const auto is_used = [&](const flag& it) {
    const auto& all = all_settings();
    return std::any_of(all.begin(), all.end(), [&](const setting_info& info) {
      return info.flag == it.name && c.uses_setting(info.key);
    });
  };
  for (auto& setting : engine_flags())
    if (!is_own(setting) && (!c.uses_setting || is_used(setting)))
      line.flags.push_back(std::move(setting));
  return line;
}

int run_command_line(const cli_context& context, std::span<const std::string> args) {
  auto code = [&]() -> result<int> {
    try {
      return run(context, args);
    } catch (const std::bad_alloc&) {
      return fail(errc::internal, "out of memory: this machine has too little for the sizes given");
    } catch (const std::exception& problem) {  // nothing of ours throws: out of memory and the like
      return fail(errc::internal, problem.what());
    }
  }();
  if (std::fflush(context.out) != 0 || std::ferror(context.out) != 0)
    code = fail(errc::io_failed, "results could not be written to the output");
  if (code) return *code;
  print_error(context, code.error());
  return exit_code_of(code.error().code);
}

result<effective_config> settings_of(const cli_context& context, const parsed_flags& flags) {
  auto file = flags.text("config");
  if (const auto found = context.environment.find("DEEPINFER_CONFIG");
      !file && found != context.environment.end())
    file = found->second;
  if (file && file->empty())
    return fail(errc::bad_config, "DEEPINFER_CONFIG: found nothing, expected FILE");
  DI_TRY(effective_config config,
         make_effective({.file = file, .environment = context.environment, .flags = flags}));
  const auto& observability = config.settings.observability;
  auto level = observability.level;
  if (context.verbosity > 0) level = severity::debug;
  if (context.verbosity < 0) level = std::max(level, severity::error);
  configure_log(level, observability.format == log_format::json);
  for (const auto& warning : config.warnings) warn(context, warning);
  return config;
}

result<std::string> embedded_model(const cli_context& context) {
  constexpr std::string_view name = "tiny-v41";
  const auto bin = fs::path(context.program_path).parent_path();
  std::vector<fs::path> places;
  if (const auto found = context.environment.find("DEEPINFER_MODELS");
      found != context.environment.end())
    places.push_back(fs::path(found->second) / name);
  places.push_back(bin / "../../../examples/models" / name);   // build/PRESET/bin in a clone
  places.push_back(bin / "../share/deepinfer/models" / name);  // installed
  for (const auto& place : places) {
    std::error_code ignored;
    if (fs::exists(place / "config.json", ignored)) return place.lexically_normal().string();
  }
  std::vector<std::string> names;
  for (const auto& place : places) names.push_back(place.lexically_normal().string());
  return fail(errc::bad_checkpoint,
              fmt::format("the embedded model was not found; looked at {} (DEEPINFER_MODELS names "
                          "the folder that holds {})",
                          fmt::join(names, ", "), name));
}

result<std::string> model_directory(const cli_context& context, const engine_settings& settings) {
  const auto& path = settings.model.path;
  std::error_code ignored;
  const bool is_embedded = path.empty() || (path == "tiny" && !fs::exists(path, ignored));
  if (is_embedded) return embedded_model(context);
  return given_directory(path);
}

result<void> check_output(const std::string& path, std::string_view place) {
  std::error_code ignored;
  const bool was_there = fs::exists(path, ignored);
  if (auto* file = std::fopen(path.c_str(), "ae")) {
    std::fclose(file);
    if (!was_there) fs::remove(path, ignored);  // what fails later leaves nothing behind
    return {};
  }
  return fail(errc::bad_config, fmt::format("{}: {}: {}", place, path, std::strerror(errno)));
}

result<std::string> given_directory(std::string path) {
  if (path.empty()) return fail(errc::bad_config, "found nothing, expected a directory");
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return path;
  const auto parent = fs::path(path).parent_path().string();
  return fail(errc::bad_checkpoint,
              fmt::format("{}: found a file, expected a directory, such as {}", path,
                          parent.empty() ? "." : parent));
}

result<std::vector<std::int32_t>> parse_ids(std::string_view text, std::int32_t vocab_size) {
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  return parse_numbers(text, "id", 0, vocab_size >= 0 ? vocab_size - 1 : most);
}

result<std::vector<std::int32_t>> parse_numbers(std::string_view text, std::string_view what,
                                                std::int32_t least, std::int32_t most) {
  std::vector<std::int32_t> numbers;
  const auto limit = most == std::numeric_limits<std::int32_t>::max()
                       ? fmt::format("at least {}", least)
                       : fmt::format("{} to {}", least, most);
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    auto entry = text.substr(begin, end - begin);
    begin = end + 1;
    while (!entry.empty() && (entry.front() == ' ' || entry.front() == '\n'))
      entry.remove_prefix(1);
    while (!entry.empty() && (entry.back() == ' ' || entry.back() == '\n')) entry.remove_suffix(1);
    std::int32_t number = 0;
    const auto [last, code] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
    if (entry.empty() || code != std::errc() || last != entry.data() + entry.size() ||
        number < least || number > most)
      return fail(errc::bad_config,
                  fmt::format("{} {}: found '{}', expected a whole number, {}", what,
                              numbers.size() + 1, entry.substr(0, 40), limit));
    numbers.push_back(number);
  }
  return numbers;
}

void show_note(const cli_context&, std::string_view text) {
  log(severity::info, "{}", text);
}

void warn(const cli_context&, std::string_view text) {
  log(severity::warning, "{}", text);
}

}  // namespace deepinfer
