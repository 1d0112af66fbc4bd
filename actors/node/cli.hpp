/// The command line: a table of commands, each a function over parsed flags.
///
/// A command writes results to `context.out` and everything else to stderr; an error it returns is
/// printed as one line and becomes the exit code of its `errc` (1 failure, 2 usage or config,
/// 3 model, 4 port, 5 device); what it returns on success is the exit code (130: interrupted).
/// A new command: one `cmd_*.cpp` with a function that returns its `command`, one line in
/// `commands.cpp`.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "config/effective.hpp"
#include "config/flags.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// What a command may know of the process.
struct cli_context {
  std::FILE* out = stdout;
  std::string program_path;                        ///< of the running binary, absolute
  std::map<std::string, std::string> environment;  ///< DEEPINFER_* only
  std::int32_t verbosity = 0;                      ///< > 0: -v, < 0: -q
  bool out_is_terminal = false;
  bool err_is_terminal = false;  ///< progress bars only then
  bool err_is_coloured = false;  ///< a terminal, and NO_COLOR is not set
};

struct command {
  std::string name = {};         ///< one or two words, e.g. "config print"
  std::string summary = {};      ///< one line for the list of commands
  std::string positionals = {};  ///< usage, e.g. "[PROMPT]"
  std::int32_t positionals_min = 0;
  std::int32_t positionals_max = 0;
  std::vector<flag> flags = {};
  std::string details = {};  ///< lines of its help, e.g. the format of its file
  /// Also `--config FILE` and every flag of the schema that is not among `flags`.
  bool takes_settings = false;
  /// Does a setting mean something to it? Help shows no others; it says itself what it makes of
  /// them. Null: all do.
  std::function<bool(const std::string& key)> uses_setting = {};
  std::function<result<int>(const cli_context&, const parsed_flags&)> run = {};
};

/// All commands, in the order of help.
std::vector<command> all_commands();

/// What help shows that a command takes, its settings' flags included.
command_line command_line_of(const command& it);

/// Runs one command line (without the program's name) and returns the exit code.
int run_command_line(const cli_context& context, std::span<const std::string> args);

/// Settings of a command with `takes_settings`: `--config`, environment and flags; prints warnings.
result<effective_config> settings_of(const cli_context& context, const parsed_flags& flags);

/// Directory of the embedded model: $DEEPINFER_MODELS/tiny-v41, else that of the build tree or of
/// the installation the binary belongs to. Error bad_checkpoint names the places it looked at.
result<std::string> embedded_model(const cli_context& context);

/// `model.path` of the settings or, where it is empty or "tiny", the embedded model.
result<std::string> model_directory(const cli_context& context, const engine_settings& settings);

/// A file that results go to: one that can't be written is found now, not after the work. What it
/// holds stays until then. Error bad_config, with `place`, e.g. "--out".
result<void> check_output(const std::string& path, std::string_view place);

/// A checkpoint directory as a user gave it, without slashes at its end; whether it is there is the
/// reader's to say. Errors: bad_config where it is empty, bad_checkpoint where it is a file.
result<std::string> given_directory(std::string path);

/// "0,17,4" as ids; error bad_config names the entry. `vocab_size` bounds them where >= 0.
result<std::vector<std::int32_t>> parse_ids(std::string_view text, std::int32_t vocab_size = -1);

/// The same of other numbers, `least` to `most`; `what` names an entry in an error.
result<std::vector<std::int32_t>> parse_numbers(std::string_view text, std::string_view what,
                                                std::int32_t least, std::int32_t most);

/// Text for the user on stderr; a stderr that is closed or full is nobody's error.
template <typename... Args>
void print_err(fmt::format_string<Args...> pattern, Args&&... args) {
  const auto text = fmt::format(pattern, std::forward<Args>(args)...);
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

/// Log lines for the user, on stderr: -q hides both.
void show_note(const cli_context& context, std::string_view text);
void warn(const cli_context& context, std::string_view text);

}  // namespace deepinfer
