#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

#include "runtime/device/watchdog.hpp"

using namespace deepinfer;

namespace {

constexpr device_status fine{};
constexpr device_status failed{errc::device_failed, false};
constexpr device_status sticky{errc::device_failed, true};

std::vector<std::uint64_t> values(std::span<const ticket> tickets) {
  std::vector<std::uint64_t> out;
  for (const auto id : tickets) out.push_back(id.value);
  return out;
}

}  // namespace

TEST_CASE("a ticket answered in time is forgotten, a second answer has no effect") {
  watchdog dog(100);
  dog.open(ticket{1}, 0);
  dog.open(ticket{2}, 10);
  CHECK(dog.next_deadline_ns() == 100);
  CHECK(dog.settle(ticket{1}, fine).verdict == ticket_verdict::on_time);
  CHECK(dog.settle(ticket{1}, fine).verdict == ticket_verdict::unknown);
  CHECK(dog.settle(ticket{77}, fine).verdict == ticket_verdict::unknown);
  CHECK(dog.next_deadline_ns() == 110);
  CHECK(dog.settle(ticket{2}, failed).verdict == ticket_verdict::on_time);
  CHECK_FALSE(dog.next_deadline_ns());
}

TEST_CASE("a time-out is no completion: it quarantines, and only proof of the end frees [I17]") {
  watchdog dog(100);
  for (std::uint64_t id = 1; id <= 3; ++id) dog.open(ticket{id}, static_cast<std::int64_t>(id));
  CHECK(values(dog.expire(100)).empty());
  CHECK(values(dog.expire(102)) == std::vector<std::uint64_t>{1, 2});
  CHECK(values(dog.expire(102)).empty());  // told once
  CHECK(dog.quarantined_count() == 2);
  CHECK(dog.next_deadline_ns() == 103);
  SUBCASE("a later completion on the same stream proves both") {
    const auto answer = dog.settle(ticket{3}, fine);
    CHECK(answer.verdict == ticket_verdict::on_time);
    CHECK(values(answer.proven) == std::vector<std::uint64_t>{1, 2});
    CHECK(dog.quarantined_count() == 0);
  }
  SUBCASE("a late completion proves itself and what came before, not what came after") {
    const auto answer = dog.settle(ticket{1}, fine);
    CHECK(answer.verdict == ticket_verdict::late);
    CHECK(values(answer.proven) == std::vector<std::uint64_t>{1});
    CHECK(dog.quarantined_count() == 1);
  }
  SUBCASE("a failed step proves it as well, its work has ended") {
    CHECK(values(dog.settle(ticket{3}, failed).proven) == std::vector<std::uint64_t>{1, 2});
  }
  SUBCASE("a sticky failure proves nothing") {
    const auto answer = dog.settle(ticket{3}, sticky);
    CHECK(answer.verdict == ticket_verdict::on_time);
    CHECK(answer.proven.empty());
    CHECK(dog.quarantined_count() == 2);
    CHECK(dog.settle(ticket{2}, sticky).verdict == ticket_verdict::late);
    CHECK(dog.quarantined_count() == 2);
  }
}

TEST_CASE("over random launches, expiries and answers each ticket ends exactly once") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    watchdog dog(50);
    std::int64_t now = 0;
    std::uint64_t last = 0;
    std::uint64_t answered = 0;  // tickets are answered in order, some never
    std::set<std::uint64_t> open;
    std::set<std::uint64_t> quarantined;
    for (int turn = 0; turn < 300; ++turn) {
      now += static_cast<std::int64_t>(random() % 20);
      switch (random() % 3) {
      case 0:
        dog.open(ticket{++last}, now);
        open.insert(last);
        break;
      case 1:
        for (const auto id : dog.expire(now)) {
          REQUIRE(open.erase(id.value) == 1);
          quarantined.insert(id.value);
        }
        break;
      default: {
        if (answered >= last) break;
        answered += random() % 4 == 0 && answered + 2 <= last ? 2u : 1u;
        const bool was_open = open.count(answered) == 1;
        const auto answer = dog.settle(ticket{answered}, fine);
        REQUIRE((answer.verdict == ticket_verdict::on_time) == was_open);
        for (const auto id : answer.proven) {
          REQUIRE(id.value <= answered);
          REQUIRE(quarantined.erase(id.value) == 1);
        }
        open.erase(answered);
        for (const auto id : quarantined) REQUIRE(id > answered);
      }
      }
      REQUIRE(dog.open_count() == open.size());
      REQUIRE(dog.quarantined_count() == quarantined.size());
    }
  }
}
