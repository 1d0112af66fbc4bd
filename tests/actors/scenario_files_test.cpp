// Every file of tests/scenarios, with its own matrix and seeds, through the product's actors and
// against the judge; where it names interleavings, with 100 of them, with more effort 10,000. A
// file alone:
// actors_test -tc="every scenario file*" -sc="NAME".
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "actors/scenario/runner.hpp"
#include "actors/scenario/world.hpp"
#include "config/scenario_load.hpp"
#include "tests/support/effort.hpp"

using namespace deepinfer;

namespace {

const std::vector<std::string>& files() {
  static const auto found = scenario_files(std::string(DI_SOURCE_DIR) + "/tests/scenarios").value();
  return found;
}

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

/// None where the file names no interleavings: then it has one.
std::optional<std::int32_t> interleavings_of(const std::string& path) {
  const auto loaded = load_scenario(path);
  if (!loaded || loaded->interleavings == 1) return {};  // the report says what is wrong
  return with_effort(1) > 1 ? 10'000 : 100;
}

file_report report_of(const std::string& path) {
  run_options options;
  options.interleavings = interleavings_of(path);
  options.features = supported_features();
  run_tools tools;
  tools.play = run_case;
  tools.seconds = steady_seconds;
  return run_files(std::vector{path}, options, tools).value().front();
}

}  // namespace

TEST_CASE("every scenario file passes in all its cases, seeds and interleavings, or is skipped for "
          "what it needs") {
  for (const auto& path : files()) {
    SUBCASE(std::filesystem::path(path).stem().c_str()) {
      const auto report = report_of(path);
      CHECK_MESSAGE(report.status != file_status::invalid, report.reason);
      CHECK(report.status != file_status::out_of_time);
      for (const auto& it : report.cases)
        CHECK_MESSAGE(it.failure.empty(), it.name << ": " << it.failure);
      if (report.status == file_status::skipped)
        MESSAGE("skipped: " << report.name << ": " << report.reason);
      else
        CHECK(!report.cases.empty());
    }
  }
}

TEST_CASE("most scenario files can be played, and all of them are read") {
  std::size_t played = 0, unread = 0;
  for (const auto& path : files()) {
    const auto of = load_scenario(path);
    if (!of) {
      ++unread;
      continue;
    }
    const auto supported = supported_features();
    played += std::all_of(of->needs.begin(), of->needs.end(), [&](scenario_feature need) {
      return std::find(supported.begin(), supported.end(), need) != supported.end();
    });
  }
  CHECK(unread == 0);
  CHECK(played >= 97);
  MESSAGE(played << " of " << files().size() << " files are played");
}
