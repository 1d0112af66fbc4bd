#include <unistd.h>

#include <iterator>
#include <string>

#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "actors/node/generation.hpp"
#include "actors/node/remote_flags.hpp"
#include "actors/node/standard_input.hpp"

namespace deepinfer {
namespace {

result<generate_request> read_request(const parsed_flags& flags) {
  generate_request request;
  DI_TRY(request.sampling, read_sampling(flags));
  request.cache_salt = flags.text("cache-salt");
  const auto ids = flags.text("ids");
  if (ids && !flags.positionals.empty())
    return fail(errc::bad_config, "found a prompt and --ids, expected one of them");
  if (ids) {
    DI_TRY(request.ids, parse_ids(*ids), "--ids");
    return request;
  }
  if (!flags.positionals.empty()) {
    request.text = flags.positionals.front();
    return request;
  }
  if (::isatty(STDIN_FILENO))
    return fail(errc::bad_config,
                "found no prompt, expected one as argument, with --ids or on stdin");
  DI_TRY(request.text, read_standard_input());
  return request;
}

result<int> generate(const cli_context& context, const parsed_flags& flags) {
  DI_TRY_VOID(check_elsewhere(flags));
  DI_TRY(const auto config, settings_of(context, flags));
  DI_TRY(auto request, read_request(flags));
  // Elsewhere the node has a seed of its own, or none.
  if (config.settings.engine.seed) request.sampling.seed = config.settings.engine.seed;
  DI_TRY(const auto opened, open_engine(context, flags, config));
  const auto& engine = opened.engine;
  const interrupt_guard interrupts;
  const bool is_json = flags.is_on("json");
  const bool with_stats = flags.is_on("stats");
  DI_TRY(const auto it, run_request(context, engine, request, !is_json, interrupts));
  if (is_json) {
    fmt::print(context.out, "{}\n", to_text(answer_object(it, engine, false, with_stats)));
  } else {
    fmt::print(context.out, "\n");
    std::fflush(context.out);
    show_figures(context, it, engine, with_stats);
  }
  DI_TRY_VOID(write_trace(context, config, opened));
  return it.was_interrupted ? 130 : 0;
}

}  // namespace

command generate_command() {
  command it;
  it.name = "generate";
  it.summary = "continue a text: BOS, then the prompt as it stands";
  it.positionals = "[PROMPT]";
  it.positionals_max = 1;
  it.flags = sampling_flags();
  flag ids;
  ids.name = "ids";
  ids.help = "token ids instead of a text, used as given";
  ids.value_name = "ID,ID,...";
  flag json_output;
  json_output.name = "json";
  json_output.help = "one JSON object instead of streamed text";
  it.flags.insert(it.flags.begin(), {ids, json_output, stats_flag(), cache_salt_flag()});
  const auto elsewhere = elsewhere_flags();
  it.flags.insert(it.flags.end(), elsewhere.begin(), elsewhere.end());
  it.takes_settings = true;
  it.run = generate;
  return it;
}

}  // namespace deepinfer
