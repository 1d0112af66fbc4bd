/// Command-line flags as data: what a command accepts, parsed values, help.
///
/// A mistake is an error `bad_config` (exit code 2) that names the argument; an unknown flag names
/// the nearest known one. Everything after `--` is positional. A flag given twice: the last one
/// counts, unless it is repeatable. A switch takes `=true` or `=false` and nothing else, and after
/// `--name=` a value must follow. A negative number is an argument. Values are kept as text; their
/// owner converts them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"

namespace deepinfer {

/// One flag, `--name VALUE` or a switch.
struct flag {
  std::string name = {};  ///< without dashes, e.g. "max-tokens"
  std::string help = {};
  std::string value_name = {};    ///< shown in help, e.g. "N" or "DIR"; empty = a switch
  std::string default_text = {};  ///< shown in help; empty = not shown
  std::string group = {};         ///< heading in help; empty = "Options"
  std::vector<std::string> aliases = {};
  char short_name = '\0';
  bool is_negatable = false;  ///< a switch that also exists as --no-name
  bool is_repeatable = false;
};

/// What a command takes. `positionals` is shown in usage, e.g. "[PROMPT]".
struct command_line {
  std::string program = {};  ///< e.g. "deepinfer generate"
  std::string summary = {};
  std::string positionals = {};
  std::int32_t positionals_min = 0;
  std::int32_t positionals_max = 0;
  std::vector<flag> flags = {};  ///< -h, --help, -v, -q are added
  std::string details = {};      ///< lines of help between usage and flags
};

/// A flag with a value; `usual` is the default as text.
flag value_flag(const char* name, const char* help, const char* value_name, const char* usual);
/// A switch; a negatable one also exists as --no-name.
flag switch_flag(const char* name, const char* help, bool is_negatable = false);

/// What was given.
struct parsed_flags {
  std::map<std::string, std::vector<std::string>>
    values;  ///< by flag name; switches: "true"/"false"
  std::vector<std::string> positionals;
  bool help = false;
  std::int32_t verbosity = 0;  ///< -v counts up, -q down

  bool has(const std::string& name) const { return values.contains(name); }
  /// The last value given, or nothing.
  std::optional<std::string> text(const std::string& name) const;
  /// A switch: `otherwise` unless it was given.
  bool is_on(const std::string& name, bool otherwise = false) const;
  /// Numbers; error bad_config names the flag, what was found and what was expected.
  result<std::optional<std::int64_t>> integer(const std::string& name, std::int64_t min,
                                              std::int64_t max) const;
  result<std::optional<double>> number(const std::string& name, double min, double max) const;
  result<std::optional<double>> positive(const std::string& name, double max) const;  ///< above 0
};

result<parsed_flags> parse_flags(const command_line& command, std::span<const std::string> args);

/// Usage, flags by group with defaults and units, for a terminal of 100 columns.
std::string help_text(const command_line& command);

/// One flag per setting of `messages/engine.proto`.
std::vector<flag> engine_flags();

}  // namespace deepinfer
