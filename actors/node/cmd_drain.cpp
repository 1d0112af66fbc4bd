#include <chrono>

#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "actors/node/remote_flags.hpp"
#include "config/units.hpp"
#include "messages/wire.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {
namespace {

constexpr const char* usual_timeout = "30s";

void print_reply(const cli_context& context, bool is_json, const std::string& text,
                 const node_health& health) {
  if (!is_json) {
    fmt::print(context.out, "{}\n", text);
    return;
  }
  fmt::print(context.out, "{}\n",
             to_text(json::object{{"reply", text},
                                  {"state", name_of(health.state)},
                                  {"open_requests", health.open_requests}}));
}

result<int> drain(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto milliseconds, parse_milliseconds(flags.text("timeout").value_or(usual_timeout)),
         "--timeout");
  const std::chrono::milliseconds timeout(milliseconds);
  const bool is_json = flags.is_on("json");
  DI_TRY(const auto engine, connect_remote(context, flags));
  if (flags.is_on("undo")) {
    DI_TRY(const auto bytes, engine.call(verb::resume, {}));
    DI_TRY(const auto reply, from_wire<text_reply>(bytes));
    DI_TRY(const auto health, engine.health());
    print_reply(context, is_json, reply.text, health);
    return 0;
  }
  DI_TRY(const auto reply, engine.drain(timeout));
  DI_TRY(const auto health, engine.health());
  print_reply(context, is_json, reply, health);
  return health.open_requests == 0 ? 0 : 1;
}

}  // namespace

command drain_command() {
  auto flags = remote_flags();
  const flag timeout = value_flag("timeout", "wait at most so long", "TIME", usual_timeout);
  flags.insert(flags.begin(), {timeout,
                               {.name = "undo", .help = "take requests again"},
                               {.name = "json", .help = "one JSON object"}});
  return {.name = "drain",
          .summary =
            "let a node take no new requests, and wait until none is open; 1: some are left",
          .flags = std::move(flags),
          .run = drain};
}

}  // namespace deepinfer
