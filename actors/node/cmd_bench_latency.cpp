#include <fmt/format.h>

#include "actors/node/bench/bench_flags.hpp"
#include "actors/node/bench/bench_machine.hpp"
#include "actors/node/bench/latency_bench.hpp"
#include "actors/node/commands.hpp"
#include "runtime/model/model_config.hpp"

namespace deepinfer {
namespace {

constexpr const char* usual_text = "Once there was";

result<latency_settings> read_settings(const parsed_flags& flags) {
  constexpr std::int64_t most = 1 << 20;
  latency_settings out;
  out.text = flags.text("text").value_or(usual_text);
  DI_TRY(const auto tokens, flags.integer("tokens", 32, most));
  DI_TRY(const auto prompt, flags.integer("prompt", 1, most));
  DI_TRY(const auto repeats, flags.integer("repeats", 1, 1'000));
  out.tokens = static_cast<std::int32_t>(tokens.value_or(128));
  out.prompt = static_cast<std::int32_t>(prompt.value_or(512));
  out.repeats = static_cast<std::int32_t>(repeats.value_or(5));
  return out;
}

json::object settings_object(const latency_settings& it, const engine_settings& engine,
                             const std::string& path) {
  return {{"path", path},
          {"threads", threads_of(engine.engine)},
          {"depth", engine.engine.depth},
          {"text", it.text},
          {"tokens", it.tokens},
          {"prompt", it.prompt},
          {"drafts", it.drafts},
          {"repeats", it.repeats}};
}

result<int> bench_latency(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto config, settings_of(context, flags));
  DI_TRY(auto settings, read_settings(flags));
  DI_TRY(const auto path, model_directory(context, config.settings));
  DI_TRY(const auto model, load_model_config(path));
  const auto& engine = config.settings.engine;
  if (model.has_draft() && flags.is_on("drafts", true))
    settings.drafts = engine.num_drafts > 0 ? engine.num_drafts : model.draft.block_size;
  const auto machine = facts_of_machine();
  bench_progress progress(context, 2);
  DI_TRY(const auto made, measure_latency(config.settings, path, settings,
                                          [&](std::string_view what) { progress.show(what); }));
  progress.clear();
  if (!flags.is_on("json")) {
    fmt::print(context.out, "{}\none request at a time, {} threads, depth {}, {} repeats\n\n{}",
               machine_line(machine), threads_of(engine), engine.depth, settings.repeats,
               latency_text(made, settings));
    return 0;
  }
  auto out = bench_head("bench latency", machine, settings_object(settings, config.settings, path));
  add_latency(made, settings, out);
  fmt::print(context.out, "{}\n", to_text(out));
  return 0;
}

}  // namespace

command bench_latency_command() {
  return {
    .name = "bench latency",
    .summary = "one request alone: tokens a second with drafts, first token with a prefix hit",
    .flags = {value_flag("text", "what is continued, with drafts and without", "TEXT", usual_text),
              value_flag("tokens", "outputs of it, 32 or more", "N", "128"),
              value_flag("prompt", "random ids whose first token is awaited", "N", "512"),
              value_flag("repeats", "turns", "N", "5"),
              {.name = "drafts",
               .help = "measure decode, where the model has a drafter (usual)",
               .is_negatable = true},
              {.name = "json", .help = "one JSON object"}},
    .takes_settings = true,
    .run = bench_latency};
}

}  // namespace deepinfer
