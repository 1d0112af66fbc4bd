#include "actors/node/signals.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>

#include "actors/node/signal_filter.hpp"
#include "runtime/base/check.hpp"

namespace deepinfer {
namespace {

signal_filter filter;
std::atomic<int> stops{0};
std::atomic<int> writing_end{-1};
static_assert(std::atomic<int>::is_always_lock_free);

int reading_end = -1;

constexpr char wake_mark = 'w';

char mark_of(int signal) {
  if (signal == SIGHUP) return 'h';
  return signal == SIGUSR1 ? 'u' : 's';
}

void write_mark(char mark) {
  const int saved = errno;
  // A full pipe has marks enough to end a wait.
  static_cast<void>(::write(writing_end.load(), &mark, 1));
  errno = saved;
}

void on_alarm(int) {
  ::_exit(130);
}

void on_signal(int signal) {
  if (signal == SIGINT || signal == SIGTERM) {
    if (filter.is_echo(signal)) return;
    const auto before = stops.fetch_add(1);
    if (before > 1) ::_exit(130);
    if (before == 1) ::alarm(static_cast<unsigned>(most_last_words.count()));
  }
  write_mark(mark_of(signal));
}

void install(void (*handler)(int), void (*on_pipe)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) ::sigaction(signal, &action, nullptr);
  action.sa_handler = on_pipe;
  ::sigaction(SIGPIPE, &action, nullptr);
}

}  // namespace

signal_queue::signal_queue() {
  // Stays when the queue has gone: what ends the process after it may hang as well.
  struct sigaction at_last {};
  at_last.sa_handler = on_alarm;
  ::sigemptyset(&at_last.sa_mask);
  ::sigaction(SIGALRM, &at_last, nullptr);
  int ends[2];
  DI_CHECK(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "pipe: {}", std::strerror(errno));
  reading_end = ends[0];
  writing_end = ends[1];
  stops = 0;
  filter.forget();
  install(on_signal, SIG_IGN);
}

signal_queue::~signal_queue() {
  install(SIG_DFL, SIG_DFL);
  ::close(writing_end.exchange(-1));
  ::close(reading_end);
}

process_signal signal_queue::wait(std::chrono::milliseconds timeout) {
  pollfd readable{.fd = reading_end, .events = POLLIN, .revents = 0};
  const auto most = std::clamp<std::int64_t>(timeout.count(), 0, INT_MAX);
  if (::poll(&readable, 1, static_cast<int>(most)) != 1) return process_signal::none;
  char mark = wake_mark;
  if (::read(reading_end, &mark, 1) != 1) return process_signal::none;
  switch (mark) {
  case 's': return process_signal::stop;
  case 'h': return process_signal::hang_up;
  case 'u': return process_signal::report;
  default: return process_signal::none;
  }
}

void signal_queue::wake() {
  write_mark(wake_mark);
}

}  // namespace deepinfer
