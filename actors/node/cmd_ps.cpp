#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "actors/node/node_view.hpp"
#include "actors/node/remote_flags.hpp"

namespace deepinfer {
namespace {

result<int> ps(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto engine, connect_remote(context, flags));
  DI_TRY(const auto list, engine.requests());
  if (flags.is_on("json"))
    fmt::print(context.out, "{}\n", to_text(request_array(list)));
  else
    fmt::print(context.out, "{}", request_table(list));
  return 0;
}

}  // namespace

command ps_command() {
  auto flags = remote_flags();
  flags.insert(flags.begin(), {.name = "json", .help = "a JSON array"});
  return {.name = "ps",
          .summary = "list the open requests of a node",
          .flags = std::move(flags),
          .run = ps};
}

}  // namespace deepinfer
