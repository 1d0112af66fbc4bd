#include "actors/node/serving.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "actors/product_version.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Between two lines of a countdown, and the last look at one.
constexpr auto countdown_interval = 5s;
/// Between two looks at the interval of status lines, which may change.
constexpr milliseconds look_interval = 1s;
constexpr milliseconds longest_wait = 1h;

milliseconds until(clock_type::time_point when) {
  const auto left = std::chrono::ceil<milliseconds>(when - clock_type::now());
  return std::clamp(left, milliseconds(0), longest_wait);
}

void note_signal(const service& it, process_signal signal) {
  if (signal == process_signal::report) log(severity::info, "state: {}", it.report());
  if (signal == process_signal::hang_up)
    log(severity::info, "SIGHUP: there is nothing to open again, logs go to stderr");
}

/// Logs status lines until the process is asked to stop.
void serve(const service& it, signal_queue& signals) {
  status_line line;
  auto last = clock_type::now();
  while (true) {
    const auto interval = it.stats_interval();
    const auto next = last + (interval > 0ms ? interval : longest_wait);
    const auto signal = signals.wait(std::min(until(next), look_interval));
    if (signal == process_signal::stop) return;
    note_signal(it, signal);
    const auto now = clock_type::now();
    if (interval == 0ms || now < next) continue;
    const auto counts = it.counts();
    const auto passed = std::chrono::duration<double>(now - last).count();
    last = now;
    if (!counts) continue;
    if (const auto text = line.next(*counts, passed)) log(severity::info, "{}", *text);
  }
}

void log_countdown(const service& it, milliseconds left) {
  const auto counts = it.counts();
  if (!counts) return;
  log(severity::info, "draining: {} running, {} waiting; {:.1f} s left", counts->stats.running,
      counts->stats.queued, static_cast<double>(left.count()) * 1e-3);
}

/// After a second signal. Clients are told; what else would be tidied up is not worth their time.
int stop_at_once(service& it) {
  log(severity::info, "a second signal: open requests end with server_shutdown");
  it.stop(0ms);
  log(severity::info, "stopped");
  return 130;
}

std::string memory_text() {
  const auto page = static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  const auto gib = [page](long pages) {
    return static_cast<double>(pages) * page / (1024.0 * 1024.0 * 1024.0);
  };
  return fmt::format("{:.1f} GiB, {:.1f} GiB free", gib(::sysconf(_SC_PHYS_PAGES)),
                     gib(::sysconf(_SC_AVPHYS_PAGES)));
}

}  // namespace

void log_banner(const effective_config& config) {
  log(severity::info, "deepinfer {}: cpu, {}, memory {}", product_name(),
      counted(std::thread::hardware_concurrency(), "core"), memory_text());
  for (const auto& line : changed_settings(config)) log(severity::info, "  {}", line);
  for (const auto& line : exposure_warnings(config.settings)) log(severity::warning, "{}", line);
}

int serve_until_stopped(service& it, signal_queue& signals, milliseconds limit) {
  serve(it, signals);
  const auto deadline = clock_type::now() + limit;
  log(severity::info, "{}", stopping_line(limit));
  const auto is_idle = std::make_shared<std::atomic<bool>>(false);
  it.begin_drain(limit, [is_idle, &signals] {
    *is_idle = true;
    signals.wake();
  });
  auto next_line = clock_type::now() + milliseconds(100);
  while (!*is_idle && clock_type::now() < deadline) {
    const auto signal = signals.wait(std::min(until(next_line), until(deadline)));
    if (signal == process_signal::stop) return stop_at_once(it);
    note_signal(it, signal);
    if (*is_idle || clock_type::now() < next_line) continue;
    log_countdown(it, until(deadline));
    next_line = clock_type::now() + countdown_interval;
  }
  it.stop(time_for_answers(until(deadline)));
  log(severity::info, "stopped");
  return 0;
}

}  // namespace deepinfer
