/// The settings that hold, and where each came from: flags > DEEPINFER_* > file > default.
///
/// `messages/engine.proto` is the one schema: keys of the file, flags, variables and defaults are
/// derived from it. Mistakes are errors `bad_config` that name place (file:line:column, variable or
/// flag), what was found and what was expected; a device that this build lacks is `no_device`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/engine_settings.hpp"
#include "config/flags.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// Where settings are looked for.
struct config_sources {
  std::optional<std::string> file;                 ///< path of a YAML file
  std::map<std::string, std::string> environment;  ///< see `process_environment`
  parsed_flags flags;                              ///< only names of settings are read
};

/// One setting, for `config print`.
struct effective_value {
  std::string key;                   ///< e.g. "engine.depth"
  std::string flag;                  ///< e.g. "depth"
  std::string text;                  ///< as one would write it in YAML; empty = absent
  std::vector<std::string> strings;  ///< of a setting that is text: the same, unquoted
  std::string origin;      ///< "default", "FILE:LINE:COLUMN", "DEEPINFER_DEPTH" or "--depth"
  bool is_secret = false;  ///< `text` and `strings` are masked: *** or NAME=***

  /// `text`, or what an absent value means.
  std::string shown() const;
};

struct effective_config {
  engine_settings settings;
  std::vector<effective_value> values;  ///< in the order of the schema
  std::vector<std::string> warnings;    ///< e.g. unknown DEEPINFER_* variables
};

result<effective_config> make_effective(const config_sources& sources);

/// Are the files there that these settings name: keys of clients, certificates, a script? Error
/// bad_config naming setting and file.
result<void> check_files(const effective_config& config);

/// The variables of this process whose names start with DEEPINFER_.
std::map<std::string, std::string> process_environment();

/// `effective_config` as a table with origins, as YAML that can be loaded again, or as JSON text.
/// In JSON numbers and switches are what they are, lists arrays, what is absent null; times and
/// sizes stay text with their unit.
std::string print_effective(const effective_config& config);
std::string print_effective_json(const effective_config& config);

/// The reference of all settings, as Markdown: the content of config/flags.md.
std::string settings_reference();

}  // namespace deepinfer
