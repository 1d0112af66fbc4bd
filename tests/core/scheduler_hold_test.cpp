// Sequences whose clients take nothing: no row of theirs is planned, and nobody waits for them.
#include <doctest/doctest.h>

#include "tests/core/rank_world.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

void turn(rank_world& world) {
  world.deliver_all();
  while (world.launch()) {
  }
  if (world.core().in_flight() > 0) world.complete();
}

void settle_all(rank_world& world) {
  while (world.core().in_flight() > 0) world.complete();
  world.deliver_all();
}

}  // namespace

TEST_CASE("a held sequence gets what is launched and no further row, and goes on where it stopped "
          "[I35][I38]") {
  for (std::int32_t depth = 1; depth <= 3; ++depth)
    for (std::int32_t drafts = 0; drafts <= 2; ++drafts) {
      CAPTURE(depth);
      CAPTURE(drafts);
      auto config = small_config();
      config.depth = depth;
      config.num_drafts = drafts;
      rank_world world(config);
      const auto slow = world.submit(5, tokens(20)), fast = world.submit(5, tokens(20));
      while (world.view(slow).got.size() < 3) turn(world);
      world.hold(slow, true);
      const auto launches = world.view(slow).launches;
      const auto most =
        world.view(slow).got.size() + static_cast<std::size_t>(world.view(slow).inflight_max);
      REQUIRE(world.finish_the_others());
      CHECK(world.view(slow).launches == launches);
      CHECK(world.view(slow).got.size() <= most);
      CHECK(world.view(slow).finals == 0);
      CHECK(world.view(fast).got.size() == 20);
      CHECK(world.finish());
      world.check_end();
      CHECK(world.view(slow).got.size() == 20);
      CHECK(world.view(slow).preemptions == 0);
      CHECK(world.first_fault() == "");
    }
}

TEST_CASE("who is held is no reason to be awake: nothing is planned, asked or made room for") {
  auto config = small_config();
  config.prefix_cache = true;
  rank_world world(config);
  const auto first = world.submit(9, tokens(20));
  while (world.view(first).got.size() < 3) turn(world);
  const auto second = world.submit(9, tokens(20));
  world.hold(first, true);
  world.hold(second, true);
  settle_all(world);
  CHECK_FALSE(world.launch());
  CHECK_FALSE(world.core().has_made_room());
  CHECK_FALSE(world.core().has_wanted());
  CHECK(world.core().has_unfinished());
  for (std::int32_t channel = 0; channel < 4; ++channel) CHECK(world.waiting(channel) == 0);
  world.hold(second, false);
  CHECK(world.finish_the_others());
  CHECK(world.view(second).got.size() == 20);
  CHECK(world.finish());
  world.check_end();
  CHECK(world.first_fault() == "");
}

TEST_CASE("a held prompt is not computed further, and a held request in the queue is passed over "
          "[I07]") {
  auto config = small_config();
  config.chunk_size = 4;
  config.max_num_seqs = 2;
  rank_world world(config);
  const auto begun = world.submit(12, tokens(4));
  world.deliver_all();
  REQUIRE(world.launch());
  world.hold(begun, true);
  const auto queued = world.submit(3, tokens(4)), behind = world.submit(3, tokens(4));
  world.hold(queued, true);
  REQUIRE(world.finish_the_others());
  CHECK(world.view(begun).launches == 1);
  CHECK(world.view(queued).launches == 0);
  CHECK(world.view(behind).got.size() == 4);
  CHECK(world.finish());
  world.check_end();
  CHECK(world.first_fault() == "");
}

TEST_CASE("a held sequence can be aborted, preempted and waited for by a drain [I12][I54]") {
  for (const auto what : {0, 1, 2}) {
    CAPTURE(what);
    rank_world world(small_config());
    const auto held = world.submit(5, tokens(20)), other = world.submit(5, tokens(9));
    while (world.view(held).got.size() < 3) turn(world);
    world.hold(held, true);
    if (what == 0) world.abort(held);
    if (what == 1) world.preempt(held);
    if (what == 2) world.core().drain();
    REQUIRE(world.finish_the_others());
    CHECK(world.view(other).got.size() == 9);
    CHECK(world.core().has_work() == (what != 0));
    if (what == 1) {
      settle_all(world);
      CHECK(world.core().stats().queued == 1);
      CHECK(world.core().stats().table_blocks == 0);
    }
    CHECK(world.finish());
    world.check_end();
    CHECK(world.view(held).finish.reason ==
          (what == 0 ? finish_reason::abort : finish_reason::length));
    CHECK_FALSE(world.core().has_work());
    CHECK(world.first_fault() == "");
    world.hold(held, true);  // it has ended
    world.hold({99}, true);
    CHECK_FALSE(world.core().has_wanted());
    world.core().check_invariants();
  }
}

TEST_CASE("who is held gives way first, whatever the rule says [I56]") {
  auto config = small_config();
  config.num_kv_blocks = 8;
  config.policy.victim = victim_rule::youngest;
  rank_world world(config);
  const auto old = world.submit(8, tokens(20)), young = world.submit(8, tokens(20));
  while (world.view(young).got.size() < 2) turn(world);
  world.hold(old, true);
  REQUIRE(world.finish_the_others());
  CHECK(world.view(young).got.size() == 20);
  CHECK(world.view(young).preemptions == 0);
  CHECK(world.view(old).preemptions == 1);
  CHECK(world.finish());
  world.check_end();
  CHECK(world.view(old).got.size() == 20);
  CHECK(world.first_fault() == "");

  const victim_candidate held{0, 1, 0, 50, 1, 2, true}, other{-9, 2, 99, 1, 9, 0, false};
  for (const auto rule : {victim_rule::youngest, victim_rule::longest_output,
                          victim_rule::lowest_cost, victim_rule::lowest_priority}) {
    CHECK(goes_first(rule, held, other));
    CHECK_FALSE(goes_first(rule, other, held));
  }
}

TEST_CASE("a place, blocks and the share of a held sequence are not waited for [I07][I56]") {
  struct narrow {
    const char* what;
    void (*make)(scheduler_config&);
  };
  const narrow table[] = {
    {"places", [](scheduler_config& it) { it.max_num_seqs = 1; }},
    {"blocks", [](scheduler_config& it) { it.num_kv_blocks = 5; }},
    {"share",
     [](scheduler_config& it) {
       it.num_kv_blocks = 12;
       it.policy.used_share_max = 0.2;
     }},
    {"gap", [](scheduler_config& it) { it.policy.min_decode_gap = 50; }},
  };
  for (const auto& row : table) {
    CAPTURE(row.what);
    auto config = small_config();
    row.make(config);
    rank_world world(config);
    const auto held = world.submit(9, tokens(4));
    while (world.view(held).got.size() < 1) turn(world);
    world.hold(held, true);
    const auto next = world.submit(9, tokens(4));
    REQUIRE(world.finish_the_others());
    CHECK(world.view(next).got.size() == 4);
    CHECK(world.view(held).finals == 0);
    CHECK(world.finish());
    world.check_end();
    CHECK(world.view(held).got.size() == 4);
    CHECK(world.first_fault() == "");
  }
}

TEST_CASE("a lost rank forgets who was held") {
  rank_world world(small_config());
  const auto held = world.submit(5, tokens(9));
  world.deliver_all();
  REQUIRE(world.launch());
  world.hold(held, true);
  world.core().fail_all_started(errc::rank_lost, "gone");
  world.core().check_invariants();
  CHECK_FALSE(world.core().has_unfinished());
  CHECK_FALSE(world.core().has_wanted());
}
