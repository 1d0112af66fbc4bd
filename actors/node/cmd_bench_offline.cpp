#include <algorithm>

#include <fmt/format.h>

#include "actors/node/bench/bench_drafts.hpp"
#include "actors/node/bench/bench_flags.hpp"
#include "actors/node/bench/bench_offline.hpp"
#include "actors/node/commands.hpp"
#include "runtime/base/positive_float.hpp"

namespace deepinfer {
namespace {

result<offline_settings> read_settings(const parsed_flags& flags, const engine_settings& engine) {
  constexpr std::int64_t most = 1 << 24;
  offline_settings out;
  DI_TRY(out.batches, read_counts(flags, "batch", "1,8,32", engine.engine.max_num_seqs));
  DI_TRY(const auto prompt, flags.integer("prompt", 1, most));
  DI_TRY(const auto tokens, flags.integer("tokens", 2, most));
  DI_TRY(const auto prefill, flags.integer("prefill", 0, most));
  DI_TRY(const auto repeats, flags.integer("repeats", 1, 1'000));
  DI_TRY(const auto temperature, flags.number("temperature", 0.0, 1e6));
  DI_TRY(const auto top_p, flags.positive("top-p", 1.0));
  out.prompt = static_cast<std::int32_t>(prompt.value_or(32));
  out.tokens = static_cast<std::int32_t>(tokens.value_or(32));
  out.prefill = static_cast<std::int32_t>(prefill.value_or(256));
  out.repeats = static_cast<std::int32_t>(repeats.value_or(3));
  out.temperature = static_cast<float>(temperature.value_or(0.0));
  out.top_p = positive_float(top_p.value_or(1.0));
  out.seed = engine.engine.seed.value_or(1);
  return out;
}

/// A setting as one would write it, such as "engine.numeric".
std::string text_of(const effective_config& config, std::string_view key) {
  for (const auto& it : config.values)
    if (it.key == key) return it.text;
  return "";
}

json::object settings_object(const offline_settings& it, const effective_config& config,
                             const node_facts& facts) {
  return {{"model", facts.model_name},
          {"path", facts.model_path},
          {"numeric", text_of(config, "engine.numeric")},
          {"kernels", facts.kernels},
          {"threads", facts.threads},
          {"depth", config.settings.engine.depth},
          {"prompt", it.prompt},
          {"tokens", it.tokens},
          {"prefill", it.prefill},
          {"temperature", it.temperature},
          {"top_p", it.top_p},
          {"repeats", it.repeats},
          {"seed", it.seed},
          {"load_seconds", facts.load_seconds}};
}

std::string settings_text(const offline_settings& it, const effective_config& config,
                          const node_facts& facts) {
  return fmt::format("{}: numeric {}, kernels {}, {} threads, depth {}\n"
                     "prompt {}, {} tokens, temperature {}, top_p {}, {} repeats",
                     facts.model_name, text_of(config, "engine.numeric"), facts.kernels,
                     facts.threads, config.settings.engine.depth, it.prompt, it.tokens,
                     it.temperature, it.top_p, it.repeats);
}

struct measured {
  node_facts facts;
  offline_result steps;
  std::vector<draft_phase> drafts;  ///< as many as batches, or none
};

/// The engine is gone when the drafter's turn comes: the weights are in memory once.
result<measured> measure(const cli_context& context, const effective_config& config,
                         const offline_settings& settings, const std::string& path, bool drafts) {
  const auto batches = settings.batches.size();
  bench_progress progress(context, batches * (drafts ? 2 : 1) + (settings.prefill > 0 ? 1 : 0));
  measured out;
  {
    step_meters meters;
    auto settings_whole = config.settings;
    settings_whole.engine.min_decode_gap = 0;  // a batch starts whole, in however many steps
    DI_TRY(const auto engine, node::load(settings_whole, path, {}, &meters.for_device()));
    offline_bench bench(*engine, meters, settings);
    out.facts = engine->facts();
    DI_TRY(out.steps, bench.run([&progress](std::string_view what) { progress.show(what); }));
  }
  if (!drafts) return out;
  DI_TRY(auto bench, draft_bench::make(config.settings, path, out.facts.threads, settings));
  for (const auto batch : settings.batches) {
    progress.show(fmt::format("draft pass, batch {}", batch));
    DI_TRY(auto phase, bench.measure(batch, out.steps.rates));
    out.drafts.push_back(std::move(phase));
  }
  return out;
}

void print_text(const cli_context& context, const measured& made, const offline_settings& settings,
                const std::string& heading) {
  const auto& [facts, steps, drafts] = made;
  fmt::print(context.out, "{}\n{}\n", heading, rates_text(steps.rates));
  if (steps.prefill)
    fmt::print(
      context.out, "\n{}",
      phase_text(*steps.prefill, fmt::format("prefill of {}", settings.prefill), steps.rates));
  for (const auto& phase : steps.decode)
    fmt::print(context.out, "\n{}",
               phase_text(phase, fmt::format("decode, batch {}", phase.batch), steps.rates));
  for (std::size_t i = 0; i < drafts.size(); ++i)
    fmt::print(context.out, "\n{}",
               draft_text(drafts[i], steps.decode[i].steps.seconds.median(), steps.rates));
}

void add_measured(const measured& made, json::object& out) {
  const auto& [facts, steps, drafts] = made;
  out["rates"] = rates_object(steps.rates);
  out["prefill"] =
    steps.prefill ? json::value(phase_object(*steps.prefill, steps.rates)) : json::value(nullptr);
  json::array decode, draft;
  for (const auto& phase : steps.decode) decode.push_back(phase_object(phase, steps.rates));
  for (std::size_t i = 0; i < drafts.size(); ++i)
    draft.push_back(draft_object(drafts[i], steps.decode[i].steps.seconds.median(), steps.rates));
  out["decode"] = std::move(decode);
  out["draft"] = std::move(draft);
}

result<int> bench_offline(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto config, settings_of(context, flags));
  DI_TRY(const auto settings, read_settings(flags, config.settings));
  DI_TRY(const auto path, model_directory(context, config.settings));
  DI_TRY(const auto model, load_model_config(path));
  const auto machine = facts_of_machine();
  const bool drafts = flags.is_on("draft", true) && model.has_draft();
  DI_TRY(const auto made, measure(context, config, settings, path, drafts));
  if (!flags.is_on("json")) {
    print_text(context, made, settings,
               machine_line(machine) + "\n" + settings_text(settings, config, made.facts));
    return 0;
  }
  auto out = bench_head("bench offline", machine, settings_object(settings, config, made.facts));
  add_measured(made, out);
  fmt::print(context.out, "{}\n", to_text(out));
  return 0;
}

}  // namespace

command bench_offline_command() {
  return {
    .name = "bench offline",
    .summary = "run batches on an engine of this process; count work and time by part",
    .flags = {value_flag("batch", "requests at a time", "N,N,...", "1,8,32"),
              value_flag("prompt", "random ids in each prompt", "N", "32"),
              value_flag("tokens", "outputs of each request", "N", "32"),
              value_flag("prefill", "ids of the prompt that prefill is measured with; 0: not", "N",
                         "256"),
              value_flag("temperature", "0 = greedy", "X", "0"),
              value_flag("top-p", "keep the likeliest tokens that make up this share", "X", "1"),
              value_flag("repeats", "measurements of each", "N", "3"),
              {.name = "draft",
               .help = "measure draft passes too, where the model has a drafter (usual)",
               .is_negatable = true},
              {.name = "json", .help = "one JSON object"}},
    .takes_settings = true,
    .run = bench_offline};
}

}  // namespace deepinfer
