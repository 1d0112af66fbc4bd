/// Reads scenario files: YAML by reflection, then every check that needs no run.
///
/// Errors are `bad_config` (io_failed for a file that can't be read) and start with FILE:LINE, a
/// mistake in the YAML itself with FILE:LINE:COLUMN: unknown keys, a first line that is no comment,
/// a name that is not the file's, an entry with no or two verbs, an expectation with no or two
/// forms or with fields of another form, ids that are not legal or not known, times that go back,
/// malformed events, covers and bounds, drafts without `accept`. Settings that contradict each
/// other are no mistake of the file: see scenario_engine_check.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/scenario.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

result<scenario> load_scenario(const std::string& path);

/// The same of a text; `path` is what errors name and the file's name is taken from.
result<scenario> parse_scenario(std::string_view text, const std::string& path);

/// FILE for a file; for a directory its *.yaml files, sorted. Error io_failed.
result<std::vector<std::string>> scenario_files(const std::string& path);

}  // namespace deepinfer
