#include <doctest/doctest.h>

#include "runtime/core/token_credit.hpp"

using namespace deepinfer;

TEST_CASE("at most a window of chunks is sent and not taken, and each that is taken lets one go") {
  token_credit credit(2);
  CHECK(credit.spend(0));
  CHECK(credit.spend(0));
  CHECK_FALSE(credit.spend(0));
  CHECK(credit.pending() == 2);
  credit.take(1, 5);
  CHECK(credit.spend(5));
  CHECK_FALSE(credit.spend(5));
  credit.take(100, 6);  // it was sent two
  CHECK(credit.pending() == 0);
  CHECK(credit.spend(6));
  CHECK(credit.spend(6));
  CHECK_FALSE(credit.spend(6));
}

TEST_CASE("a client without a window is sent everything, and what it takes does not matter") {
  for (const auto window : {0, -3}) {
    token_credit credit(window);
    for (int i = 0; i < 1000; ++i) CHECK(credit.spend(0));
    CHECK(credit.pending() == 0);
    credit.take(5, 0);
    CHECK(credit.pending() == 0);
    CHECK(credit.has_credit());
    CHECK_FALSE(credit.hold_change());
    CHECK_FALSE(credit.is_slow(1'000'000, 1));
  }
}

TEST_CASE("who has no credit is held, and told so once, until something is taken") {
  token_credit credit(1);
  CHECK_FALSE(credit.hold_change());
  CHECK(credit.spend(0));
  CHECK(credit.hold_change() == true);
  CHECK(credit.is_held());
  CHECK_FALSE(credit.hold_change());
  credit.take(1, 0);
  CHECK(credit.hold_change() == false);
  CHECK_FALSE(credit.is_held());
  // Taken and sent again between two looks: nothing has changed.
  CHECK(credit.spend(0));
  CHECK(credit.hold_change() == true);
  credit.take(1, 0);
  CHECK(credit.spend(0));
  CHECK_FALSE(credit.hold_change());
}

TEST_CASE("what cannot wait goes out beyond the window, and has to be taken as well") {
  token_credit credit(1);
  CHECK(credit.spend(0));
  credit.overdraw(0);
  CHECK(credit.pending() == 2);
  credit.take(1, 0);
  CHECK_FALSE(credit.has_credit());
  credit.take(1, 0);
  CHECK(credit.has_credit());
  for (const auto reason : {finish_reason::abort, finish_reason::error, finish_reason::resource})
    CHECK_FALSE(waits_for_credit(reason));
  for (const auto reason : {finish_reason::stop, finish_reason::length, finish_reason::tool_calls})
    CHECK(waits_for_credit(reason));
}

TEST_CASE("a client is slow when it has taken nothing for long after its credit ran out") {
  token_credit credit(2);
  CHECK(credit.spend(100));
  CHECK_FALSE(credit.is_slow(10'000, 50));  // it has credit: nothing waits
  CHECK(credit.spend(200));
  CHECK_FALSE(credit.is_slow(249, 50));
  CHECK(credit.is_slow(250, 50));
  CHECK_FALSE(credit.spend(260));  // does not begin again
  CHECK(credit.is_slow(260, 50));
  credit.take(0, 300);
  credit.take(-4, 300);
  CHECK(credit.is_slow(300, 50));
  credit.take(1, 300);
  CHECK_FALSE(credit.is_slow(10'000, 50));
  CHECK(credit.spend(400));
  CHECK_FALSE(credit.is_slow(449, 50));
  credit.overdraw(440);
  CHECK(credit.is_slow(450, 50));
  credit.take(1, 460);  // still none left, but it does take
  CHECK_FALSE(credit.is_slow(500, 50));
  CHECK(credit.is_slow(510, 50));
}
