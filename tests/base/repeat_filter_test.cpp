#include <doctest/doctest.h>

#include "runtime/base/repeat_filter.hpp"

using namespace deepinfer;
using namespace std::chrono_literals;

namespace {

constexpr repeat_filter::time_point start{};

}  // namespace

TEST_CASE("a line that comes again within the interval is counted, not written") {
  repeat_filter filter(10s);
  CHECK(filter.admit("no blocks", start));
  CHECK_FALSE(filter.admit("no blocks", start + 1s));
  CHECK_FALSE(filter.admit("no blocks", start + 9s));
  CHECK(filter.admit("another", start + 9s));
  CHECK(filter.take_overdue(start + 9s).empty());
  CHECK(filter.take_overdue(start + 10s) == std::vector<std::string>{"no blocks (2 more in 10 s)"});
  CHECK(filter.admit("no blocks", start + 10s));
}

TEST_CASE("a line that came once is told once") {
  repeat_filter filter(10s);
  CHECK(filter.admit("once", start));
  CHECK(filter.take_overdue(start + 20s).empty());
  CHECK_FALSE(filter.holds_lines());
}

TEST_CASE("of too many different lines none is lost and every count is told") {
  repeat_filter filter(10s, 2);
  CHECK(filter.admit("a", start));
  CHECK_FALSE(filter.admit("a", start));
  CHECK(filter.admit("b", start));
  CHECK(filter.admit("c", start));  // in the place of b, which has no repeat
  CHECK_FALSE(filter.admit("c", start));
  CHECK(filter.admit("d", start));  // a and c have counts to tell
  CHECK(filter.admit("d", start));
  CHECK(filter.holds_lines());
  CHECK(filter.take_overdue(start + 10s) ==
        std::vector<std::string>{"a (1 more in 10 s)", "c (1 more in 10 s)"});
  CHECK_FALSE(filter.holds_lines());
}
