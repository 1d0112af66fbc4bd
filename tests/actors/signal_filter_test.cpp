#include <csignal>

#include <doctest/doctest.h>

#include "actors/node/signal_filter.hpp"

namespace deepinfer {
namespace {

TEST_CASE("a signal is an echo of the same one shortly before, and of no other") {
  constexpr auto soon = signal_filter::echo_ns - 1;
  signal_filter it;
  CHECK(!it.is_echo(SIGTERM, 1'000));
  CHECK(it.is_echo(SIGTERM, 1'000));
  CHECK(it.is_echo(SIGTERM, 1'000 + soon));
  CHECK(!it.is_echo(SIGTERM, 1'000 + signal_filter::echo_ns));  // echoes don't prolong it
  CHECK(!it.is_echo(SIGINT, 1'001 + signal_filter::echo_ns));
  CHECK(!it.is_echo(SIGTERM, 1'002 + signal_filter::echo_ns));
  CHECK(it.is_echo(SIGTERM, 1'003 + signal_filter::echo_ns));
  it.forget();
  CHECK(!it.is_echo(SIGTERM, 1'004 + signal_filter::echo_ns));
}

}  // namespace
}  // namespace deepinfer
