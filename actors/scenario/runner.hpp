/// Runs scenario files: every case, seed and interleaving, against the judge and the shadows.
///
/// What plays a case, the wall clock and where text goes are given, so that the runner is tested
/// without a world. A case ends with its first run that fails. Files whose `needs` are not all
/// supported are skipped and said.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/scenario/outcome.hpp"
#include "actors/scenario/report.hpp"
#include "config/scenario.hpp"
#include "config/scenario_cases.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// The `needs` that the world can play; files that need others are skipped.
std::span<const scenario_feature> supported_features();

struct run_options {
  std::string only_case;                       ///< see matches_case; empty: all
  std::optional<std::uint64_t> seed;           ///< only this one
  std::optional<std::int32_t> interleaving;    ///< only this one, from 0
  std::optional<std::int32_t> interleavings;   ///< instead of the file's number
  double wall_limit_s = 0;                     ///< of all files together; 0: none
  std::span<const scenario_feature> features;  ///< that can be played
};

struct run_tools {
  std::function<run_outcome(const scenario&, const scenario_case&, std::uint64_t, std::int32_t)>
    play;
  std::function<double()> seconds;  ///< a clock that never goes back
  /// Where given, gets the step trace of each run that failed, in Chrome's format.
  std::function<result<void>(const scenario&, const run_name&, const std::string& trace)>
    keep_trace;
  std::function<void(const file_report&)> tell;  ///< after each file
};

/// One report per file. Errors are those of keep_trace; a file that is invalid is a report.
result<std::vector<file_report>> run_files(std::span<const std::string> paths,
                                           const run_options& options, const run_tools& tools);

/// 2: a file is invalid, 10: a check failed, 12: the wall limit came first, 11: `strict` and
/// something was skipped, else 0; the first of these that holds.
int exit_code_of(std::span<const file_report> reports, bool strict);

}  // namespace deepinfer
