#include "actors/node/commands.hpp"

#include <fmt/format.h>

namespace deepinfer {

namespace {

result<int> print(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const effective_config config, settings_of(context, flags));
  const auto text =
    flags.is_on("json") ? print_effective_json(config) + "\n" : print_effective(config);
  fmt::print(context.out, "{}", text);
  return 0;
}

result<int> validate(const cli_context& context, const parsed_flags& flags) {
  // The file alone: what the environment or flags would change is not its fault or merit.
  DI_TRY(const effective_config config,
         make_effective({.file = flags.positionals.front(), .environment = {}, .flags = {}}));
  DI_TRY_VOID(check_files(config));
  std::size_t set = 0;
  for (const auto& value : config.values) set += value.origin != "default";
  fmt::print(context.out, "{}: valid, {} of {} settings given\n", flags.positionals.front(), set,
             config.values.size());
  return 0;
}

result<int> docs(const cli_context& context, const parsed_flags&) {
  fmt::print(context.out, "{}", settings_reference());
  return 0;
}

}  // namespace

command config_print_command() {
  return {.name = "config print",
          .summary = "print every setting and where its value comes from",
          .flags = {{.name = "json", .help = "one JSON object"}},
          .takes_settings = true,
          .run = print};
}

command config_validate_command() {
  return {.name = "config validate",
          .summary = "check a YAML file of settings",
          .positionals = "FILE",
          .positionals_min = 1,
          .positionals_max = 1,
          .run = validate};
}

command config_docs_command() {
  return {.name = "config docs",
          .summary = "print the reference of all settings as Markdown",
          .run = docs};
}

}  // namespace deepinfer
