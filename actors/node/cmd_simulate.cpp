#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "actors/simulate/simulation_flags.hpp"
#include "actors/simulate/simulation_report.hpp"

namespace deepinfer {

namespace {

constexpr int simulate_schema = 1;

result<simulation_report> run_once(const std::string& label, const parsed_flags& flags) {
  DI_TRY(const auto settings, simulation_settings_of(flags));
  DI_TRY(const auto workload, workload_of(flags));
  DI_TRY(const auto outcome, simulate(settings, workload));
  auto out = report_of(outcome);
  out.label = label;
  out.settings = settings_object(flags);
  if (outcome.canary_errors > 0)
    print_err("deepinfer: error: the engine is broken: {} errors of its canary, the first: {}\n",
              outcome.canary_errors, outcome.canary_text);
  if (out.failed > 0)
    print_err("deepinfer: {}: {}{} of {} requests failed, the first: {}\n",
              out.done > 0 ? "warning" : "error", label.empty() ? "" : label + ": ", out.failed,
              out.requests, out.failure);
  return out;
}

result<int> run(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto runs, compared_runs(flags));
  std::vector<simulation_report> reports;
  for (const auto& [label, given] : runs) {
    auto report = run_once(label, given);
    if (!report && !label.empty()) return tl::unexpected(std::move(report).error().within(label));
    if (!report) return tl::unexpected(std::move(report).error());
    reports.push_back(std::move(*report));
  }
  if (!flags.is_on("json")) {
    fmt::print(context.out, "{}", table_of(reports));
    return exit_code_of(reports);
  }
  json::array all;
  for (const auto& report : reports) all.push_back(object_of(report));
  const json::object out{
    {"command", "simulate"}, {"schema", simulate_schema}, {"runs", std::move(all)}};
  fmt::print(context.out, "{}\n", to_text(out));
  return exit_code_of(reports);
}

}  // namespace

command simulate_command() {
  auto flags = simulation_flags();
  flags.push_back({.name = "compare",
                   .help = "run once for each value of a flag and print the runs side by side; "
                           "values that hold commas are set apart by ;",
                   .value_name = "KEY=V1,V2,..."});
  flags.push_back({.name = "json", .help = "one JSON object"});
  return {.name = "simulate",
          .summary = "serve a workload on a device that takes what a step model says, in no time",
          .flags = std::move(flags),
          .run = run};
}

}  // namespace deepinfer
