#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "actors/node/remote_flags.hpp"
#include "runtime/base/file.hpp"

namespace deepinfer {
namespace {

constexpr std::int64_t usual_steps = 1'000;
constexpr std::int64_t most_steps = 1 << 20;

result<int> trace(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto steps, flags.integer("steps", 1, most_steps));
  const auto path = flags.text("out");
  if (path) DI_TRY_VOID(check_output(*path, "--out"));
  DI_TRY(const auto engine, connect_remote(context, flags));
  DI_TRY(const auto text, engine.trace(static_cast<std::int32_t>(steps.value_or(usual_steps))));
  if (!path) {
    fmt::print(context.out, "{}", text);
    return 0;
  }
  DI_TRY_VOID(write_file(*path, text));
  show_note(context, "step trace written to " + *path + " (open it in ui.perfetto.dev)");
  return 0;
}

}  // namespace

command trace_command() {
  auto flags = remote_flags();
  auto out = value_flag("out", "write it there", "FILE", "standard output");
  out.short_name = 'o';
  flags.insert(flags.begin(),
               {value_flag("steps", "newest steps of every rank", "N", "1000"), std::move(out)});
  return {.name = "trace",
          .summary = "fetch the step trace of a node as Chrome JSON",
          .flags = std::move(flags),
          .run = trace};
}

}  // namespace deepinfer
