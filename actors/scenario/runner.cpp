#include "actors/scenario/runner.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "actors/scenario/judge.hpp"
#include "config/scenario_engine_check.hpp"
#include "config/scenario_load.hpp"

namespace deepinfer {

namespace {

class file_runner {
public:
  file_runner(const run_options& options, const run_tools& tools, double deadline_s)
    : options_(options),
      tools_(tools),
      deadline_s_(deadline_s) {}

  result<file_report> run(const std::string& path) {
    file_report report;
    report.path = report.name = path;
    const auto loaded = load_scenario(path);
    if (!loaded) {
      report.status = file_status::invalid;
      report.reason = loaded.error().message;
      return report;
    }
    report.name = loaded->name;
    report.covers = loaded->covers;
    report.reason = missing_features(*loaded);
    if (!report.reason.empty()) {
      report.status = file_status::skipped;
      return report;
    }
    for (const auto& it : cases_of(*loaded)) {
      if (!matches_case(options_.only_case, it.name)) continue;
      DI_TRY_VOID(run_one(*loaded, it, report));
      if (report.status == file_status::out_of_time) return report;
    }
    if (!report.cases.empty()) return report;
    report.status = file_status::skipped;
    report.reason = fmt::format("has no case {}", options_.only_case);
    report.lacks_case = true;
    return report;
  }

private:
  std::string missing_features(const scenario& of) const {
    std::string out;
    for (const auto need : of.needs)
      if (std::find(options_.features.begin(), options_.features.end(), need) ==
          options_.features.end())
        out += fmt::format("{}{}", out.empty() ? "needs " : ", ", name_of(need));
    return out;
  }

  result<void> run_one(const scenario& of, const scenario_case& it, file_report& report) {
    case_report out;
    out.name = it.name;
    const auto begin = tools_.seconds();
    const auto done = run_seeds(of, it, out, report);
    out.seconds = tools_.seconds() - begin;
    if (!out.failure.empty() && report.status == file_status::passed)
      report.status = file_status::failed;
    report.cases.push_back(std::move(out));
    return done;
  }

  result<void> run_seeds(const scenario& of, const scenario_case& it, case_report& out,
                         file_report& report) {
    const auto first = options_.seed.value_or(of.seed);
    const auto seeds = options_.seed ? 1 : of.seeds;
    for (std::int32_t i = 0; i < seeds && out.failure.empty(); ++i) {
      const auto seed = first + static_cast<std::uint64_t>(i);
      const auto begin = options_.interleaving.value_or(0);
      const auto end =
        options_.interleaving ? begin + 1 : options_.interleavings.value_or(of.interleavings);
      const auto seeded_case = seeded(of, it, seed);
      std::vector<run_outcome> shadows;
      for (const auto& shadow : shadows_of(of, seeded_case))
        shadows.push_back(play(of, shadow, seed, 0));
      for (auto interleaving = begin; interleaving < end && out.failure.empty(); ++interleaving) {
        if (deadline_s_ > 0 && tools_.seconds() >= deadline_s_) {
          report.status = file_status::out_of_time;
          report.reason = "the wall-clock limit was reached";
          return {};
        }
        DI_TRY_VOID(run_and_judge(of, seeded_case, {it.name, seed, interleaving}, shadows, out));
      }
    }
    return {};
  }

  result<void> run_and_judge(const scenario& of, const scenario_case& it, const run_name& name,
                             std::span<const run_outcome> shadows, case_report& out) {
    const auto outcome = play(of, it, name.seed, name.interleaving);
    ++out.runs;
    auto found = judge(of, it, outcome);
    if (!outcome.refused)
      for (const auto& shadow : shadows) {
        const auto differences = compare_with_shadow(of, outcome, shadow);
        found.insert(found.end(), differences.begin(), differences.end());
      }
    if (found.empty()) return {};
    out.failure = failure_text(of, name, found, outcome.log);
    if (!tools_.keep_trace) return {};
    return tools_.keep_trace(of, name, chrome_trace(outcome.trace));
  }

  /// Settings that contradict each other are refused before anything is built of them.
  run_outcome play(const scenario& of, const scenario_case& it, std::uint64_t seed,
                   std::int32_t interleaving) const {
    if (auto checked = check_engine(it.engine, it.model); !checked)
      return {.log = audit_log(of.requests.size(), 0), .refused = std::move(checked).error()};
    return tools_.play(of, it, seed, interleaving);
  }

  const run_options& options_;
  const run_tools& tools_;
  double deadline_s_;
};

bool has_any(std::span<const file_report> reports, file_status status) {
  return std::any_of(reports.begin(), reports.end(),
                     [status](const auto& it) { return it.status == status; });
}

bool has_failed_case(std::span<const file_report> reports) {
  return std::any_of(reports.begin(), reports.end(), [](const file_report& it) {
    return std::any_of(it.cases.begin(), it.cases.end(),
                       [](const case_report& c) { return !c.failure.empty(); });
  });
}

}  // namespace

std::span<const scenario_feature> supported_features() {
  using enum scenario_feature;
  static constexpr scenario_feature supported[] = {
    chunked_prefill, mixed_steps,  spec,      confidence, prefix_cache, preempt, penalty, sampling,
    grammar,         stop_strings, reasoning, logprobs,   priority,     graphs,  clients, window,
  };
  return supported;
}

result<std::vector<file_report>> run_files(std::span<const std::string> paths,
                                           const run_options& options, const run_tools& tools) {
  std::vector<file_report> out;
  const auto deadline_s = options.wall_limit_s > 0 ? tools.seconds() + options.wall_limit_s : 0;
  file_runner runner(options, tools, deadline_s);
  for (const auto& path : paths) {
    DI_TRY(auto report, runner.run(path));
    if (tools.tell) tools.tell(report);
    out.push_back(std::move(report));
  }
  return out;
}

int exit_code_of(std::span<const file_report> reports, bool strict) {
  if (has_any(reports, file_status::invalid)) return 2;
  if (has_failed_case(reports)) return 10;
  if (has_any(reports, file_status::out_of_time)) return 12;
  return strict && has_any(reports, file_status::skipped) ? 11 : 0;
}

}  // namespace deepinfer
