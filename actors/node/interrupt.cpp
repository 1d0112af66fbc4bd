#include "actors/node/interrupt.hpp"

#include <atomic>
#include <csignal>

#include <unistd.h>

#include "actors/node/signal_filter.hpp"

namespace deepinfer {
namespace {

signal_filter filter;
std::atomic<int> asked{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  if (!filter.is_echo(signal) && asked.fetch_add(1) > 0) ::_exit(130);
}

void install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

interrupt_guard::interrupt_guard() {
  asked = 0;
  filter.forget();
  install(on_signal);
}

interrupt_guard::~interrupt_guard() {
  install(SIG_DFL);
}

bool interrupt_guard::is_asked() const {
  return asked.load() > 0;
}

void interrupt_guard::forget() {
  asked = 0;
}

}  // namespace deepinfer
