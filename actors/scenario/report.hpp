/// What `deepinfer run` prints and writes: a line per file, the text of a failure, JUnit XML.
///
/// Pure: times and counts are arguments. Two runs of equal seed and interleaving print the same
/// bytes, but for the wall-clock milliseconds of a `pass` line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/scenario/outcome.hpp"
#include "config/scenario.hpp"

namespace deepinfer {

/// Which run it was.
struct run_name {
  std::string case_name;  ///< empty: the only case
  std::uint64_t seed = 1;
  std::int32_t interleaving = 0;
};

/// "FILE:9: metric deferred_release_pending: wanted 2, seen 3 (at 9ms, rank 0, request a)".
std::string text_of(const violation& it, const scenario& of);

/// One entry of the log as a line: "   9000us  rank 0 launches step 4: decode a 1".
std::string text_of(const audit_entry& entry, const audit_log& log, const scenario& of);

/// The command that repeats exactly this run.
std::string repeat_command(const scenario& of, const run_name& run);

/// All violations (ten at most, then a count), the run, the last 20 entries of the log and the
/// command. Lines end in a newline.
std::string failure_text(const scenario& of, const run_name& run,
                         std::span<const violation> violations, const audit_log& log);

struct case_report {
  std::string name;
  std::int64_t runs = 0;
  double seconds = 0;
  std::string failure;  ///< failure_text; empty: it passed
};

enum class file_status : std::uint8_t { passed, failed, skipped, invalid, out_of_time };

struct file_report {
  std::string path;
  std::string name;  ///< of the scenario; the path where the file is invalid
  file_status status = file_status::passed;
  std::string reason;  ///< "needs grammar", or what is wrong with the file
  std::vector<std::string> covers;
  std::vector<case_report> cases;
  bool lacks_case = false;  ///< skipped, because it has none of those that were asked for
};

/// "pass blocks-wait-for-the-step-that-reads-them 3 cases, 300 runs, 41 ms", with what failed
/// below it.
std::string text_of(const file_report& it);

/// "102 passed, 48 skipped, 0 failed".
std::string summary_text(std::span<const file_report> reports);

/// A `testsuite` per file, a `testcase` per case.
std::string junit_xml(std::span<const file_report> reports);

}  // namespace deepinfer
