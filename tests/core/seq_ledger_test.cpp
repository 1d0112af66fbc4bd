#include <doctest/doctest.h>

#include <deque>

#include "runtime/base/random.hpp"
#include "runtime/core/seq_ledger.hpp"
#include "tests/core/death.hpp"

using namespace deepinfer;

namespace {

ledger_row chunk(std::uint64_t step, std::int32_t width, bool is_final, std::uint32_t epoch = 0) {
  return {{step}, epoch, row_kind::prefill, width, is_final ? 1 : 0, is_final ? 1 : 0};
}

ledger_row decode(std::uint64_t step, std::int32_t width, std::uint32_t epoch = 0) {
  return {{step}, epoch, row_kind::decode, width, width, 1};
}

seq_ledger roomy(std::int64_t prompt) {
  seq_ledger ledger(prompt);
  ledger.grow_capacity(1 << 20);
  return ledger;
}

}  // namespace

TEST_CASE("committed, known and in flight are different counters, and only a settle moves tokens "
          "between them [I03]") {
  auto ledger = roomy(10);
  ledger.launch(chunk(1, 6, false), 0);
  ledger.launch(chunk(2, 4, true), 0);
  CHECK(ledger.committed() == 0);
  CHECK(ledger.known() == 10);
  CHECK(ledger.inflight_widths() == 10);
  CHECK(ledger.next_position() == 10);
  CHECK(ledger.inflight_max() == 1);
  CHECK(ledger.settle({1}, 0));
  CHECK(ledger.committed() == 6);
  CHECK(ledger.emitted() == 0);
  ledger.launch(decode(3, 4), 0);
  CHECK(ledger.committed() == 6);
  CHECK(ledger.inflight_max() == 5);
  CHECK(ledger.inflight_min() == 2);
  CHECK(ledger.settle({2}, 1));
  CHECK(ledger.committed() == 10);
  CHECK(ledger.known() == 11);
  CHECK(ledger.settle({3}, 3));  // two of three drafts accepted
  CHECK(ledger.committed() == 13);
  CHECK(ledger.emitted() == 4);
  CHECK(ledger.refs() == 0);
  CHECK(ledger.inflight_max() == 0);
}

TEST_CASE("a chunk that is not final yields nothing, and whether it was final is kept with the "
          "launched row [I58]") {
  auto ledger = roomy(8);
  ledger.launch(chunk(1, 4, false), 0);
  ledger.launch(chunk(2, 4, true), 0);  // the sequence has moved on before step 1 settles
  CHECK(ledger.row(0).yields_max == 0);
  CHECK(ledger.row(1).yields_max == 1);
  CHECK(ledger.settle({1}, 0));
  CHECK(ledger.emitted() == 0);
  CHECK(ledger.row(0).yields_min == 1);
}

TEST_CASE("the device's length stays between the ledger's bounds, and all three meet when nothing "
          "is in flight [I02][I05]") {
  struct flight {
    std::uint64_t step;
    std::int32_t tokens;
  };
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    auto ledger = roomy(5);
    std::deque<flight> flying;
    std::int64_t device = 0;  // after everything launched
    std::uint64_t step = 0;
    CAPTURE(seed);
    for (std::uint32_t i = 0; i < 60; ++i) {
      const auto words = random_words(seed, i, draw_purpose::target, 0);
      if (words[0] % 2 == 0 && flying.size() < depth_limit) {
        const bool in_prompt = ledger.next_position() < 5;
        const auto width =
          in_prompt ? std::int32_t{1} : static_cast<std::int32_t>(1 + words[1] % 4);
        const auto row =
          in_prompt ? chunk(++step, width, ledger.next_position() == 4) : decode(++step, width);
        ledger.launch(row, 0);
        const auto given =
          in_prompt ? row.yields_max
                    : static_cast<std::int32_t>(1 + words[2] % static_cast<std::uint32_t>(width));
        flying.push_back({step, given});
        device += in_prompt ? width : given;
      } else if (!flying.empty()) {
        CHECK(ledger.settle({flying.front().step}, flying.front().tokens));
        flying.pop_front();
      }
      ledger.check_invariants();
      CHECK(ledger.length_min() <= device);
      CHECK(device <= ledger.length_max());
      CHECK(ledger.length_max() <= ledger.next_position());
      CHECK(ledger.refs() == static_cast<std::int32_t>(flying.size()));
      if (!flying.empty()) continue;
      CHECK(ledger.committed() == device);
      CHECK(ledger.inflight_max() == 0);
      CHECK(ledger.inflight_min() == 0);
      CHECK(ledger.inflight_widths() == 0);
    }
  }
}

TEST_CASE("a frame of an old epoch changes no counter of the new one [I02][I04]") {
  auto ledger = roomy(4);
  ledger.launch(chunk(1, 4, true), 0);
  CHECK(ledger.settle({1}, 1));
  ledger.launch(decode(2, 4), 0);
  ledger.launch(decode(3, 4), 0);
  ledger.restart();
  CHECK(ledger.epoch() == 1);
  CHECK(ledger.committed() == 0);
  CHECK(ledger.inflight_max() == 0);
  CHECK(ledger.refs() == 2);
  CHECK(ledger.known() == 5);  // ids stay known
  ledger.grow_capacity(64);
  ledger.launch(chunk(4, 5, true, 1), 0);
  ledger.check_invariants();
  CHECK_FALSE(ledger.settle({2}, 4));
  CHECK_FALSE(ledger.settle({3}, 1));
  CHECK(ledger.committed() == 0);
  CHECK(ledger.known() == 5);
  CHECK(ledger.inflight_widths() == 5);
  CHECK(ledger.inflight_max() == 1);
  CHECK(ledger.refs() == 1);
  CHECK(ledger.settle({4}, 1));
  CHECK(ledger.committed() == 5);
  CHECK(ledger.known() == 6);
}

TEST_CASE("a row whose step failed leaves the sums and commits nothing [I02][I19]") {
  auto ledger = roomy(4);
  ledger.launch(chunk(1, 4, true), 0);
  ledger.launch(decode(2, 4), 0);
  ledger.drop({1});
  CHECK(ledger.committed() == 0);
  CHECK(ledger.refs() == 1);
  CHECK(ledger.inflight_max() == 4);
  ledger.drop({2});
  CHECK(ledger.inflight_max() == 0);
  CHECK(ledger.refs() == 0);
  CHECK(ledger.newest() == step_id{2});  // the fence of what it held
}

TEST_CASE("a table may be shortened to what launched rows write, and the capacity says so [I16]") {
  seq_ledger ledger(10);
  ledger.grow_capacity(32);
  ledger.launch(chunk(1, 10, true), 3);
  ledger.shrink_capacity(16, 3);
  CHECK(ledger.capacity() == 16);
  ledger.check_invariants();
}

TEST_CASE("a launch beyond the table, a settle out of order and a second settle are refused with "
          "their numbers [I01][I02][I08]") {
  const auto beyond = test::death_message([] {
    seq_ledger ledger(10);
    ledger.grow_capacity(12);
    ledger.launch(chunk(1, 10, true), 3);
  });
  CHECK(beyond.find("step 1 may write 13 tokens, the table holds 12") != std::string::npos);
  const auto early = test::death_message([] {
    auto ledger = roomy(4);
    ledger.launch(chunk(1, 4, true), 0);
    ledger.launch(decode(2, 1), 0);
    ledger.settle({2}, 1);
  });
  CHECK(early.find("step 2 settles before step 1") != std::string::npos);
  const auto twice = test::death_message([] {
    auto ledger = roomy(4);
    ledger.launch(chunk(1, 4, true), 0);
    ledger.settle({1}, 1);
    ledger.settle({1}, 1);
  });
  CHECK(twice.find("that nothing launched names") != std::string::npos);
  const auto too_short = test::death_message([] {
    seq_ledger ledger(10);
    ledger.grow_capacity(16);
    ledger.launch(chunk(1, 10, true), 0);
    ledger.shrink_capacity(8, 0);
  });
  CHECK(too_short.find("leave 8, launched rows need 10") != std::string::npos);
}
