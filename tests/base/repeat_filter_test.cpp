#include <doctest/doctest.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "runtime/base/repeat_filter.hpp"
#include "runtime/base/repeat_gate.hpp"

using namespace deepinfer;
using namespace std::chrono_literals;

namespace {

using told_lines = std::vector<repeat_filter::told>;

constexpr repeat_filter::time_point start{};
constexpr auto warning = severity::warning;

}  // namespace

TEST_CASE("a line that comes again within the interval is counted, not written") {
  repeat_filter filter(10s);
  CHECK(filter.admit(warning, "no blocks", start));
  CHECK_FALSE(filter.due());
  CHECK_FALSE(filter.admit(warning, "no blocks", start + 1s));
  CHECK_FALSE(filter.admit(warning, "no blocks", start + 9s));
  CHECK(filter.admit(warning, "another", start + 9s));
  CHECK(filter.take_overdue(start + 9s).empty());
  CHECK(filter.due() == start + 10s);
  CHECK(filter.take_overdue(start + 10s) == told_lines{{warning, "no blocks (2 more in 10 s)"}});
  CHECK_FALSE(filter.due());
  CHECK(filter.admit(warning, "no blocks", start + 10s));
}

TEST_CASE("a line that came once is told once") {
  repeat_filter filter(10s);
  CHECK(filter.admit(warning, "once", start));
  CHECK(filter.take_overdue(start + 20s).empty());
  CHECK_FALSE(filter.due());
}

TEST_CASE("what is held back keeps its level, and the first of it says when it is due") {
  repeat_filter filter(10s);
  CHECK(filter.admit(warning, "once", start));
  CHECK(filter.admit(severity::error, "lost", start + 1s));
  CHECK(filter.admit(warning, "lost", start + 2s));
  CHECK_FALSE(filter.admit(warning, "lost", start + 2s));
  CHECK(filter.due() == start + 12s);
  CHECK_FALSE(filter.admit(severity::error, "lost", start + 3s));
  CHECK(filter.due() == start + 11s);
  CHECK(filter.take_overdue(start + 11s) == told_lines{{severity::error, "lost (1 more in 10 s)"}});
  CHECK(filter.due() == start + 12s);
  CHECK(filter.take_all(start + 11s) == told_lines{{warning, "lost (1 more in 9 s)"}});
  CHECK_FALSE(filter.due());
}

TEST_CASE("of too many different lines none is lost and every count is told") {
  repeat_filter filter(10s, 2);
  CHECK(filter.admit(warning, "a", start));
  CHECK_FALSE(filter.admit(warning, "a", start));
  CHECK(filter.admit(warning, "b", start));
  CHECK(filter.admit(warning, "c", start));  // in the place of b, which has no repeat
  CHECK_FALSE(filter.admit(warning, "c", start));
  CHECK(filter.admit(warning, "d", start));  // a and c have counts to tell
  CHECK(filter.admit(warning, "d", start));
  CHECK(filter.due());
  CHECK(filter.take_overdue(start + 10s) ==
        told_lines{{warning, "a (1 more in 10 s)"}, {warning, "c (1 more in 10 s)"}});
  CHECK_FALSE(filter.due());
}

TEST_CASE("what is held back is told in time though nothing else is said, and at the end") {
  std::atomic<int> written = 0, told = 0;
  const auto write = [&](severity level, std::string_view line) {
    CHECK(level == severity::error);
    int more = 0;
    if (std::sscanf(std::string(line).c_str(), "lost (%d more", &more) == 1)
      told += more;
    else
      ++written;
  };
  constexpr int said = 1000;
  SUBCASE("in time") {
    repeat_gate gate(10ms, write);
    for (int i = 0; i < said; ++i) gate.say(severity::error, "lost");
    while (written + told < said) std::this_thread::yield();  // the test's own limit ends it
  }
  SUBCASE("at the end") {
    {
      repeat_gate gate(1h, write);
      for (int i = 0; i < said; ++i) gate.say(severity::error, "lost");
      CHECK(written == 1);
      CHECK(told == 0);
    }
    CHECK(written == 1);
  }
  CHECK(written + told == said);
}
