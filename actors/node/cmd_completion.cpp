#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "actors/node/completion.hpp"

namespace deepinfer {
namespace {

result<int> completion(const cli_context& context, const parsed_flags& flags) {
  const auto commands = all_commands();
  DI_TRY(const auto script, completion_script(flags.positionals.front(), commands));
  fmt::print(context.out, "{}", script);
  return 0;
}

}  // namespace

command completion_command() {
  return {.name = "completion",
          .summary = "print a shell's completion script: source <(deepinfer completion bash)",
          .positionals = "bash|zsh|fish",
          .positionals_min = 1,
          .positionals_max = 1,
          .run = completion};
}

}  // namespace deepinfer
