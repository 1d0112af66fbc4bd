#include <algorithm>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "actors/scenario/runner.hpp"
#include "actors/scenario/world.hpp"
#include "config/scenario_load.hpp"
#include "config/units.hpp"
#include "runtime/base/file.hpp"
#include "runtime/base/log.hpp"

namespace deepinfer {

namespace {

result<std::vector<std::string>> files_of(const parsed_flags& flags) {
  auto named = flags.positionals;
  if (const auto given = flags.values.find("scenario"); given != flags.values.end())
    named.insert(named.end(), given->second.begin(), given->second.end());
  if (named.empty()) return fail(errc::bad_config, "found no scenario, expected FILE|DIR...");
  std::vector<std::string> out;
  for (const auto& name : named) {
    auto files = scenario_files(name);
    if (!files) return fail(errc::bad_config, std::move(files).error().message);
    if (files->empty()) return fail(errc::bad_config, name + ": found no *.yaml files");
    out.insert(out.end(), files->begin(), files->end());
  }
  return out;
}

/// With the flags that --repeat [KEY=VALUE,...:]SEED:INTERLEAVING stands for.
result<parsed_flags> with_repeat(const parsed_flags& flags) {
  const auto given = flags.text("repeat");
  if (!given) return flags;
  for (const auto* other : {"case", "seed", "interleaving", "interleavings"})
    if (flags.has(other))
      return fail(errc::bad_config,
                  fmt::format("--{}: found beside --repeat, expected one of them", other));
  auto out = flags;
  const auto last = given->rfind(':');
  const auto first = last == 0 || last == std::string::npos ? last : given->rfind(':', last - 1);
  if (last == std::string::npos)
    return fail(errc::bad_config, fmt::format("--repeat: found '{}', expected "
                                              "[KEY=VALUE,...:]SEED:INTERLEAVING",
                                              *given));
  if (first != std::string::npos && first < last) out.values["case"] = {given->substr(0, first)};
  const auto seed = first != std::string::npos && first < last ? first + 1 : 0;
  out.values["seed"] = {given->substr(seed, last - seed)};
  out.values["interleaving"] = {given->substr(last + 1)};
  return out;
}

/// A case that no file has is a mistake, not a skip.
result<void> check_found(const std::string& wanted, std::span<const file_report> reports) {
  const bool has_run = std::any_of(reports.begin(), reports.end(),
                                   [](const file_report& it) { return !it.cases.empty(); });
  const bool is_missed = std::any_of(reports.begin(), reports.end(),
                                     [](const file_report& it) { return it.lacks_case; });
  if (has_run || !is_missed) return {};
  return fail(errc::bad_config,
              fmt::format("--case: found {}, expected a case of one of the files", wanted));
}

result<run_options> options_of(const parsed_flags& flags) {
  run_options out;
  constexpr auto most = std::int64_t{1} << 30;
  out.only_case = flags.text("case").value_or("");
  if (const auto checked = check_case(out.only_case); !checked)
    return fail(errc::bad_config, "--case: " + checked.error().message);
  DI_TRY(const auto seed, flags.integer("seed", 0, most * most));
  if (seed) out.seed = static_cast<std::uint64_t>(*seed);
  DI_TRY(const auto interleaving, flags.integer("interleaving", 0, most));
  if (interleaving) out.interleaving = static_cast<std::int32_t>(*interleaving);
  DI_TRY(const auto interleavings, flags.integer("interleavings", 1, most));
  if (interleavings) out.interleavings = static_cast<std::int32_t>(*interleavings);
  if (out.interleaving && out.interleavings)
    return fail(errc::bad_config, "--interleaving and --interleavings: expected one of them");
  if (const auto limit = flags.text("wall-limit")) {
    const auto parsed = parse_milliseconds(*limit);
    if (!parsed) return fail(errc::bad_config, "--wall-limit: " + parsed.error().message);
    out.wall_limit_s = static_cast<double>(*parsed) / 1000.0;
  }
  out.features = supported_features();
  return out;
}

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

/// DIR/NAME-CASE-SEED-INTERLEAVING.json
result<void> write_trace(const std::string& directory, const scenario& of, const run_name& run,
                         const std::string& trace) {
  std::error_code code;
  std::filesystem::create_directories(directory, code);
  if (code) return fail(errc::io_failed, fmt::format("{}: {}", directory, code.message()));
  std::string name = of.name;
  for (const char c : run.case_name.empty() ? std::string() : "-" + run.case_name)
    name += c == ' ' || c == '/' ? '-' : c;
  return write_file(fmt::format("{}/{}-{}-{}.json", directory, name, run.seed, run.interleaving),
                    trace);
}

result<int> run(const cli_context& context, const parsed_flags& given) {
  DI_TRY(const auto flags, with_repeat(given));
  DI_TRY(const auto files, files_of(flags));
  DI_TRY(const auto options, options_of(flags));
  const auto junit = flags.text("junit");
  if (junit) DI_TRY_VOID(check_output(*junit, "--junit"));
  // What the engine says of faults that a scenario wants is of use for a single one at most.
  if (context.verbosity <= 0) configure_log(severity::off, false);
  run_tools tools;
  tools.play = run_case;
  tools.seconds = steady_seconds;
  tools.tell = [&context](const file_report& report) {
    fmt::print(context.out, "{}", text_of(report));
    std::fflush(context.out);
  };
  if (const auto directory = flags.text("trace"))
    tools.keep_trace = [directory = *directory](const scenario& of, const run_name& name,
                                                const std::string& trace) {
      return write_trace(directory, of, name, trace);
    };
  DI_TRY(const auto reports, run_files(files, options, tools));
  if (junit) DI_TRY_VOID(write_file(*junit, junit_xml(reports)));
  DI_TRY_VOID(check_found(options.only_case, reports));
  if (context.verbosity >= 0) print_err("{}\n", summary_text(reports));
  return exit_code_of(reports, flags.is_on("strict"));
}

}  // namespace

command run_command() {
  return {.name = "run",
          .summary = "play scenarios against the engine on a virtual clock and judge them",
          .positionals = "FILE|DIR...",
          .positionals_max = 10000,
          .flags = {{.name = "scenario",
                     .help = "a file or directory, the same as without the flag",
                     .value_name = "FILE|DIR",
                     .is_repeatable = true},
                    {.name = "case",
                     .help = "only cases with these settings, e.g. depth=2,num_drafts=3",
                     .value_name = "KEY=VALUE,..."},
                    {.name = "seed", .help = "only this seed", .value_name = "N"},
                    {.name = "interleaving", .help = "only this one, from 0", .value_name = "N"},
                    {.name = "interleavings",
                     .help = "how many of each case, instead of the file's number",
                     .value_name = "N"},
                    {.name = "repeat",
                     .help = "only this run, as a failure names it: its case, seed and "
                             "interleaving",
                     .value_name = "[CASE:]SEED:INTERLEAVING"},
                    {.name = "strict", .help = "exit code 11 where a file was skipped"},
                    {.name = "junit", .help = "also write JUnit XML", .value_name = "FILE"},
                    {.name = "trace",
                     .help = "write the step trace of each run that fails",
                     .value_name = "DIR"},
                    {.name = "wall-limit",
                     .help = "stop after this long, e.g. 10m: exit code 12",
                     .value_name = "TIME"}},
          .run = run};
}

}  // namespace deepinfer
