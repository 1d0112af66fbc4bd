#include "actors/node/serving.hpp"

#include <algorithm>
#include <atomic>
#include <memory>

#include "runtime/base/log.hpp"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Between two lines of a countdown, and the last look at one.
constexpr auto countdown_interval = 5s;
/// For what is on its way to clients when the last request has ended.
constexpr milliseconds last_words = 1s;
/// Nobody is waited for longer than this without a look at what has changed.
constexpr milliseconds longest_wait = 1h;

milliseconds until(clock_type::time_point when) {
  const auto left = std::chrono::ceil<milliseconds>(when - clock_type::now());
  return std::clamp(left, milliseconds(0), longest_wait);
}

double seconds(milliseconds span) {
  return static_cast<double>(span.count()) * 1e-3;
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
    const auto signal = signals.wait(until(next));
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
  log(severity::info, "draining: {} running, {} waiting; {:.0f} s left", counts->stats.running,
      counts->stats.queued, seconds(left));
}

}  // namespace

int serve_until_stopped(service& it, signal_queue& signals, milliseconds limit) {
  serve(it, signals);
  const auto deadline = clock_type::now() + limit;
  log(severity::info,
      "stopping: new requests are refused, open ones have {:.0f} s; a second "
      "signal ends them at once",
      seconds(limit));
  const auto is_idle = std::make_shared<std::atomic<bool>>(false);
  it.begin_drain(limit, [is_idle, &signals] {
    *is_idle = true;
    signals.wake();
  });
  auto next_line = clock_type::now() + milliseconds(100);
  while (!*is_idle && clock_type::now() < deadline) {
    note_signal(it, signals.wait(std::min(until(next_line), until(deadline))));
    if (*is_idle || clock_type::now() < next_line) continue;
    log_countdown(it, until(deadline));
    next_line = clock_type::now() + countdown_interval;
  }
  it.stop(*is_idle ? std::max(until(deadline), last_words) : 0ms);
  log(severity::info, "stopped");
  return 0;
}

}  // namespace deepinfer
