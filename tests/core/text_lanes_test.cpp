#include "runtime/core/text_lanes.hpp"

#include <doctest/doctest.h>

#include "runtime/base/random.hpp"

using namespace deepinfer;

namespace {

using numbers = std::vector<std::uint64_t>;

constexpr text_lane_rules small{.most_bytes = 10, .most_waiting = 3, .patience_us = 100};

}  // namespace

TEST_CASE("short texts are read beside each other, long ones one after the other") {
  text_lanes lanes(small);
  for (std::uint64_t i = 0; i < 3; ++i) CHECK(lanes.submit(i, 4, 0));
  for (std::uint64_t i = 10; i < 12; ++i) CHECK(lanes.submit(i, 50, 0));
  CHECK(lanes.next(0).begin == numbers{0, 1, 10});
  CHECK(lanes.next(0).begin.empty());
  lanes.end(1);
  CHECK(lanes.next(0).begin == numbers{2});  // whatever the long one does
  lanes.end(10);
  CHECK(lanes.next(0).begin == numbers{11});
  // One that is as long as all may be is read, too.
  lanes.end(0);
  CHECK(lanes.submit(4, 10, 0));
  CHECK(lanes.next(0).begin.empty());
  lanes.end(2);
  CHECK(lanes.next(0).begin == numbers{4});
}

TEST_CASE("only so many texts wait, and only so long") {
  text_lanes lanes(small);
  CHECK(lanes.submit(0, 50, 0));
  CHECK(lanes.next(0).begin == numbers{0});
  for (std::uint64_t i = 1; i < 4; ++i) CHECK(lanes.submit(i, 50, static_cast<std::int64_t>(i)));
  CHECK_FALSE(lanes.submit(9, 50, 5));
  CHECK(lanes.submit(20, 1, 5));  // the other lane has room
  CHECK(lanes.next(99).begin == numbers{20});
  const auto turn = lanes.next(102);
  CHECK(turn.begin.empty());
  CHECK(turn.late == numbers{1, 2});
  lanes.end(0);
  CHECK(lanes.next(102).begin == numbers{3});
}

TEST_CASE("every text that was taken is read once or late, and bytes stay within bounds") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    text_lanes lanes(small);
    std::uint64_t state = seed, next = 0, taken = 0, told = 0;
    std::map<std::uint64_t, std::size_t> sizes;
    std::vector<std::uint64_t> reading;
    const auto draw = [&](std::uint64_t below) { return split_mix64(state++) % below; };
    for (std::int64_t now = 0; now < 400; now += 5) {
      if (now < 300 && draw(3) > 0) {
        const auto bytes = static_cast<std::size_t>(1 + draw(15));
        sizes[next] = bytes;
        if (lanes.submit(next++, bytes, now)) ++taken;
      }
      if (!reading.empty() && (draw(2) == 0 || now >= 300)) {
        lanes.end(reading.front());
        reading.erase(reading.begin());
      }
      const auto turn = lanes.next(now);
      told += turn.begin.size() + turn.late.size();
      reading.insert(reading.end(), turn.begin.begin(), turn.begin.end());
      std::size_t short_bytes = 0, longs = 0;
      for (const auto number : reading) {
        if (sizes[number] > small.most_bytes)
          ++longs;
        else
          short_bytes += sizes[number];
      }
      CHECK(short_bytes <= small.most_bytes);
      CHECK(longs <= 1);
    }
    CHECK(told == taken);
  }
}
