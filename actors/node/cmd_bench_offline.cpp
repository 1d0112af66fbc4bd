#include <algorithm>

#include <fmt/format.h>

#include "actors/node/bench/bench_flags.hpp"
#include "actors/node/bench/bench_offline.hpp"
#include "actors/node/commands.hpp"

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
  DI_TRY(const auto top_p, flags.number("top-p", 1e-6, 1.0));
  out.prompt = static_cast<std::int32_t>(prompt.value_or(32));
  out.tokens = static_cast<std::int32_t>(tokens.value_or(32));
  out.prefill = static_cast<std::int32_t>(prefill.value_or(256));
  out.repeats = static_cast<std::int32_t>(repeats.value_or(3));
  out.temperature = static_cast<float>(temperature.value_or(0.0));
  out.top_p = static_cast<float>(top_p.value_or(1.0));
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
  return fmt::format("{}: numeric {}, kernels {}, {} threads, depth {}; prompt {}, {} tokens, "
                     "temperature {}, top_p {}, {} repeats",
                     facts.model_name, text_of(config, "engine.numeric"), facts.kernels,
                     facts.threads, config.settings.engine.depth, it.prompt, it.tokens,
                     it.temperature, it.top_p, it.repeats);
}

result<int> bench_offline(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto config, settings_of(context, flags));
  DI_TRY(const auto settings, read_settings(flags, config.settings));
  DI_TRY(const auto path, model_directory(context, config.settings));
  const auto machine = facts_of_machine();
  step_meters meters;
  DI_TRY(const auto engine, node::load(config.settings, path, {}, &meters.for_device()));
  bench_progress progress(context, settings.batches.size() + (settings.prefill > 0 ? 1 : 0));
  offline_bench bench(*engine, meters, settings);
  DI_TRY(const auto made, bench.run([&progress](std::string_view what) { progress.show(what); }));
  progress.clear();
  if (!flags.is_on("json")) {
    fmt::print(context.out, "{}\n{}\n{}\n", machine_line(machine),
               settings_text(settings, config, engine->facts()), rates_line(made.rates));
    if (made.prefill)
      fmt::print(
        context.out, "\n{}",
        phase_text(*made.prefill, fmt::format("prefill of {}", settings.prefill), made.rates));
    for (const auto& phase : made.decode)
      fmt::print(context.out, "\n{}",
                 phase_text(phase, fmt::format("decode, batch {}", phase.batch), made.rates));
    return 0;
  }
  json::object out;
  out["command"] = "bench offline";
  out["schema"] = bench_schema;
  out["machine"] = machine_object(machine);
  out["settings"] = settings_object(settings, config, engine->facts());
  out["rates"] = rates_object(made.rates);
  out["prefill"] =
    made.prefill ? json::value(phase_object(*made.prefill, made.rates)) : json::value(nullptr);
  json::array decode;
  for (const auto& phase : made.decode) decode.push_back(phase_object(phase, made.rates));
  out["decode"] = std::move(decode);
  fmt::print(context.out, "{}\n", to_text(out));
  return 0;
}

}  // namespace

command bench_offline_command() {
  const auto value = [](const char* name, const char* help, const char* what, const char* usual) {
    return flag{.name = name, .help = help, .value_name = what, .default_text = usual};
  };
  return {.name = "bench offline",
          .summary = "run batches on an engine of this process; count work and time by part",
          .flags = {value("batch", "requests at a time", "N,N,...", "1,8,32"),
                    value("prompt", "random ids in each prompt", "N", "32"),
                    value("tokens", "outputs of each request", "N", "32"),
                    value("prefill", "ids of the prompt that prefill is measured with; 0: not", "N",
                          "256"),
                    value("temperature", "0 = greedy", "X", "0"),
                    value("top-p", "keep the likeliest tokens that make up this share", "X", "1"),
                    value("repeats", "measurements of each", "N", "3"),
                    {.name = "json", .help = "one JSON object"}},
          .takes_settings = true,
          .run = bench_offline};
}

}  // namespace deepinfer
