#include <cmath>

#include <fmt/format.h>

#include "actors/node/bench/bench_flags.hpp"
#include "actors/node/bench/bench_machine.hpp"
#include "actors/node/bench/step_bench.hpp"
#include "actors/node/commands.hpp"

namespace deepinfer {
namespace {

result<step_bench_settings> read_settings(const parsed_flags& flags,
                                          const engine_settings& engine) {
  constexpr std::int64_t most_steps = 1'000;
  step_bench_settings out;
  DI_TRY(const auto shares, read_counts(flags, "host-share", "5,10,20,30,50", 100));
  for (const auto percent : shares) out.shares.push_back(percent / 100.0);
  DI_TRY(const auto batch, flags.integer("batch", 1, engine.engine.max_num_seqs));
  DI_TRY(const auto prompt, flags.integer("prompt", 1, 4'096));
  DI_TRY(const auto steps, flags.integer("steps", 16, most_steps));
  DI_TRY(const auto repeats, flags.integer("repeats", 1, 1'000));
  out.batch = static_cast<std::int32_t>(batch.value_or(0));
  out.prompt = static_cast<std::int32_t>(prompt.value_or(16));
  out.steps = static_cast<std::int32_t>(steps.value_or(64));
  out.repeats = static_cast<std::int32_t>(repeats.value_or(3));
  return out;
}

/// The checkpoint's drafter with as many drafts as the settings say, else a whole pass of it.
std::int32_t drafts_of(const parsed_flags& flags, const engine_settings& engine,
                       const model_config& model) {
  if (!flags.is_on("drafts", true) || !model.has_draft()) return 0;
  return engine.engine.num_drafts > 0 ? engine.engine.num_drafts : model.draft.block_size;
}

json::object settings_object(const step_bench_settings& it, const std::string& path,
                             std::int32_t batch) {
  return {{"path", path},
          {"batch", batch},
          {"prompt", it.prompt},
          {"steps", it.steps},
          {"repeats", it.repeats},
          {"drafts", it.drafts},
          {"step_seconds_min", it.step_seconds_min}};
}

result<int> bench_step(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto config, settings_of(context, flags));
  DI_TRY(auto settings, read_settings(flags, config.settings));
  DI_TRY(const auto path, model_directory(context, config.settings));
  const auto machine = facts_of_machine();
  DI_TRY(const auto model, load_model(path, numeric_of(config.settings.engine)));
  settings.drafts = drafts_of(flags, config.settings, model.config());
  bench_progress progress(context, 2 + settings.shares.size());
  DI_TRY(auto bench, step_bench::make(model, config.settings, settings));
  DI_TRY(const auto made, bench.run([&](std::string_view what) { progress.show(what); }));
  progress.clear();
  if (!flags.is_on("json")) {
    fmt::print(context.out,
               "{}\nbatch {}, prompt {}, {} steps a run, {} repeats, {} drafts; one core for the "
               "host, one as the device\n\n{}",
               machine_line(machine), made.batch, settings.prompt, settings.steps, settings.repeats,
               settings.drafts, rows_text(made));
    return 0;
  }
  json::array rows;
  for (const auto& row : made.rows) rows.push_back(row_object(row, made.batch));
  auto out = bench_head("bench step", machine, settings_object(settings, path, made.batch));
  out["rows"] = std::move(rows);
  fmt::print(context.out, "{}\n", to_text(out));
  return 0;
}

}  // namespace

command bench_step_command() {
  return {.name = "bench step",
          .summary = "what overlapping host and device gains, by how much work the host has",
          .flags = {value_flag("host-share", "host work, in % of the device's time", "N,N,...",
                               "5,10,20,30,50"),
                    value_flag("batch", "requests at a time", "N", "a step of 2 ms"),
                    value_flag("prompt", "random ids in each prompt", "N", "16"),
                    value_flag("steps", "decode steps of a run", "N", "64"),
                    value_flag("repeats", "runs of each", "N", "3"),
                    {.name = "drafts",
                     .help = "measure with drafts too, where the model has a drafter (usual)",
                     .is_negatable = true},
                    {.name = "json", .help = "one JSON object"}},
          .takes_settings = true,
          .run = bench_step};
}

}  // namespace deepinfer
