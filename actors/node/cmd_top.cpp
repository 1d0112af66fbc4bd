#include <poll.h>

#include <chrono>

#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "actors/node/interrupt.hpp"
#include "actors/node/node_view.hpp"
#include "actors/node/remote_flags.hpp"

namespace deepinfer {
namespace {

using clock_type = std::chrono::steady_clock;

constexpr const char* clear_screen = "\033[H\033[2J";
constexpr int refresh_ms = 1'000;

result<node_view> look(const client& engine) {
  node_view out;
  DI_TRY(out.health, engine.health());
  // While a model is loaded there is nothing but health.
  if (out.health.state == health_state::loading) return out;
  DI_TRY(out.stats, engine.stats());
  DI_TRY(out.requests, engine.requests());
  return out;
}

result<int> watch(const cli_context& context, const client& engine) {
  const interrupt_guard interrupts;
  std::optional<node_stats> before;
  auto last = clock_type::now();
  while (!interrupts.is_asked()) {
    DI_TRY(auto view, look(engine));
    const auto now = clock_type::now();
    view.seconds = std::chrono::duration<double>(now - last).count();
    view.before = before;
    last = now;
    before = view.stats;
    fmt::print(context.out, "{}{}", clear_screen, top_text(view));
    std::fflush(context.out);
    static_cast<void>(::poll(nullptr, 0, refresh_ms));  // Ctrl-C ends it early
  }
  return 0;
}

result<int> top(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto engine, connect_remote(context, flags));
  const bool is_json = flags.is_on("json");
  if (!is_json && !flags.is_on("once") && context.out_is_terminal) return watch(context, engine);
  DI_TRY(const auto view, look(engine));
  if (is_json)
    fmt::print(context.out, "{}\n", to_text(top_object(view)));
  else
    fmt::print(context.out, "{}", top_text(view));
  return 0;
}

}  // namespace

command top_command() {
  auto flags = remote_flags();
  flags.insert(flags.begin(), {{.name = "once", .help = "print one look instead of refreshing"},
                               {.name = "json", .help = "one JSON object of one look"}});
  return {.name = "top",
          .summary = "show what a node is doing, every second: gauges, rates, requests",
          .flags = std::move(flags),
          .run = top};
}

}  // namespace deepinfer
