#include <optional>

#include <fmt/format.h>

#include "actors/node/bench/bench_flags.hpp"
#include "actors/node/bench/bench_machine.hpp"
#include "actors/node/bench/core_actors.hpp"
#include "actors/node/commands.hpp"

namespace deepinfer {
namespace {

struct core_settings {
  std::vector<std::int32_t> rows;
  std::int32_t drafts = 0;
  std::int32_t steps = 0;
  bool with_actors = true;
};

struct core_row {
  std::int32_t rows = 0;
  sample_list core_seconds;  ///< of a step
  std::optional<actors_cost> actors;

  double core_us() const { return 1e6 * core_seconds.median() / rows; }
  double us() const { return 1e6 * actors->seconds.median() / rows; }
};

result<core_settings> read_settings(const parsed_flags& flags) {
  core_settings out;
  DI_TRY(out.rows, read_counts(flags, "rows", "64,128,256", 4'096));
  DI_TRY(const auto drafts, flags.integer("drafts", 0, 16));
  DI_TRY(const auto steps, flags.integer("steps", window_steps, 100'000));
  out.drafts = static_cast<std::int32_t>(drafts.value_or(5));
  out.steps = static_cast<std::int32_t>(steps.value_or(2'000)) / window_steps * window_steps;
  out.with_actors = flags.is_on("actors", true);
  return out;
}

result<std::vector<core_row>> measure(const cli_context& context, const core_settings& settings) {
  std::vector<core_row> out;
  bench_progress progress(context, settings.rows.size());
  for (const auto rows : settings.rows) {
    progress.show(fmt::format("{} rows", rows));
    const core_bench_sizes sizes{rows, settings.drafts, settings.steps};
    auto& row = out.emplace_back();
    row.rows = rows;
    row.core_seconds = run_core_loop(sizes);
    if (!settings.with_actors) continue;
    DI_TRY(row.actors, run_core_actors(sizes));
  }
  return out;
}

json::object row_object(const core_row& row) {
  json::object out{{"rows", row.rows},
                   {"core_us_per_sequence_step", row.core_us()},
                   {"core_step_seconds", summary_of(row.core_seconds)},
                   {"us_per_sequence_step", nullptr},
                   {"step_seconds", nullptr},
                   {"messages_per_step", nullptr}};
  if (!row.actors) return out;
  out["us_per_sequence_step"] = row.us();
  out["step_seconds"] = summary_of(row.actors->seconds);
  out["messages_per_step"] = row.actors->messages_per_step;
  return out;
}

void print_text(const cli_context& context, const std::vector<core_row>& rows,
                const core_settings& settings, const machine_facts& machine) {
  fmt::print(context.out,
             "{}\n{} drafts, {} steps, depth 2; microseconds\n\n{:>6} {:>22} {:>22} {:>9}\n",
             machine_line(machine), settings.drafts, settings.steps, "rows", "core: a step, a row",
             "actors: a step, a row", "messages");
  for (const auto& row : rows) {
    fmt::print(context.out, "{:>6} {:>13.1f} {:>8.3f}", row.rows, 1e6 * row.core_seconds.median(),
               row.core_us());
    if (row.actors)
      fmt::print(context.out, " {:>13.1f} {:>8.3f} {:>9.2f}", 1e6 * row.actors->seconds.median(),
                 row.us(), row.actors->messages_per_step);
    fmt::print(context.out, "\n");
  }
}

result<int> bench_core(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto settings, read_settings(flags));
  const auto machine = facts_of_machine();
  DI_TRY(const auto rows, measure(context, settings));
  if (!flags.is_on("json")) {
    print_text(context, rows, settings, machine);
    return 0;
  }
  const auto& last = rows.back();
  auto out = bench_head("bench core", machine,
                        json::object{{"drafts", settings.drafts},
                                     {"steps", settings.steps},
                                     {"actors", settings.with_actors}});
  out["us_per_sequence_step"] = last.actors ? json::value(last.us()) : json::value(nullptr);
  out["core_us_per_sequence_step"] = last.core_us();
  json::array each;
  for (const auto& row : rows) each.push_back(row_object(row));
  out["rows"] = std::move(each);
  fmt::print(context.out, "{}\n", to_text(out));
  return 0;
}

}  // namespace

command bench_core_command() {
  return {
    .name = "bench core",
    .summary = "what a step costs the scheduler, alone and with the actors around it",
    .flags =
      {value_flag("rows", "sequences at a time; the last one is the headline", "N,N,...",
                  "64,128,256"),
       value_flag("drafts", "drafts of a row; each number of them is accepted as often", "N", "5"),
       value_flag("steps", "decode steps, in hundreds", "N", "2000"),
       {.name = "actors", .help = "measure with the actors too (usual)", .is_negatable = true},
       {.name = "json", .help = "one JSON object"}},
    .run = bench_core};
}

}  // namespace deepinfer
