#include <unistd.h>

#include <atomic>
#include <thread>

#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "actors/node/load_bar.hpp"
#include "actors/node/serving.hpp"
#include "actors/service.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

/// Between two lines about loading where there is no terminal for a bar.
constexpr auto progress_interval = 5s;

/// Loads on a thread of its own while this one takes signals. Nothing is lost where it is asked to
/// stop then, so it does at once: loading itself can't be cut short.
result<void> load_and_listen(const cli_context& context, service& it, const std::string& path,
                             signal_queue& signals) {
  std::atomic<bool> has_ended{false};
  result<void> outcome;
  load_bar bar(context.err_is_terminal && context.verbosity >= 0);
  auto last_line = clock_type::now();
  std::jthread loader([&] {
    outcome = it.load(path, [&](std::uint64_t done, std::uint64_t total) {
      bar.draw(done, total);
      if (context.err_is_terminal || clock_type::now() - last_line < progress_interval) return;
      last_line = clock_type::now();
      log(severity::info, "loading {}: {:.0f} %", path,
          100.0 * static_cast<double>(done) / static_cast<double>(total));
    });
    has_ended = true;
    signals.wake();
  });
  while (!has_ended) {
    const auto signal = signals.wait(1h);
    if (signal == process_signal::report) log(severity::info, "state: loading {}", path);
    if (signal != process_signal::stop || has_ended) continue;
    log(severity::info, "stopped while loading");
    std::fflush(nullptr);
    ::_exit(0);
  }
  loader.join();
  return outcome;
}

/// The model may be named without its flag.
result<parsed_flags> with_model(parsed_flags flags) {
  if (flags.positionals.empty()) return flags;
  if (flags.positionals.front().empty())
    return fail(errc::bad_config, "MODEL: found an empty text, expected a directory");
  if (flags.has("model"))
    return fail(errc::bad_config, "found MODEL and --model, expected one of them");
  flags.values["model"] = {flags.positionals.front()};
  return flags;
}

std::string metrics_name(const cli_context& context, const engine_settings& settings) {
  return model_directory(context, settings)
    .map([&](const std::string& path) { return served_name(settings, path); })
    .value_or(std::string());
}

result<int> serve(const cli_context& context, const parsed_flags& given) {
  DI_TRY(const auto flags, with_model(given));
  DI_TRY(const auto config, settings_of(context, flags));
  const auto& settings = config.settings;
  DI_TRY_VOID(check_files(config));
  if (const auto& trace = settings.observability.trace_file; !trace.empty())
    DI_TRY_VOID(check_output(trace, "observability.trace_file"));
  signal_queue signals;
  log_banner(config);
  DI_TRY(const auto it, service::open(config, metrics_name(context, settings)));
  const auto port = it->actor_port();
  log(severity::info, "listening on {}{}, loading", it->url(),
      port ? fmt::format(" and for remote clients on {}:{}", settings.actor.host, *port) : "");
  DI_TRY(const auto path, model_directory(context, settings));
  DI_TRY_VOID(load_and_listen(context, *it, path, signals));
  const auto& facts = it->engine()->facts();
  log(severity::info, "{}, {}, {} kernels; loaded in {:.1f} s", facts.device_name,
      counted(facts.threads, "thread"), facts.kernels, facts.load_seconds);
  const auto cores = static_cast<std::int32_t>(std::thread::hardware_concurrency());
  if (const auto hint = cores_hint(facts.threads, cores)) log(severity::info, "{}", *hint);
  log(severity::info, "{}", ready_line(facts, it->url()));
  return serve_until_stopped(*it, signals, settings.server.shutdown_timeout);
}

}  // namespace

command serve_command() {
  return {.name = "serve",
          .summary = "serve a model over HTTP and to remote clients",
          .positionals = "[MODEL]",
          .positionals_max = 1,
          .takes_settings = true,
          .run = serve};
}

}  // namespace deepinfer
