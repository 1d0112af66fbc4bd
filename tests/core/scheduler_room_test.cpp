// Want of room: who waits, who gives way, and what comes back to whom.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/core/rank_world.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

void run_step(rank_world& world) {
  world.deliver_all();
  REQUIRE(world.launch());
  world.complete();
  world.deliver_all();
}

void check_finish(rank_world& world) {
  CHECK(world.finish());
  world.check_end();
  CHECK(world.first_fault() == "");
}

}  // namespace

TEST_CASE("who lacks a block waits for those behind a fence, and nobody is preempted for it "
          "[I14]") {
  for (const auto victim : {victim_rule::youngest, victim_rule::longest_output,
                            victim_rule::lowest_cost, victim_rule::lowest_priority}) {
    auto config = small_config();
    config.num_kv_blocks = 4;
    config.policy.victim = victim;
    rank_world world(config);
    const auto a = world.submit(7, tokens(9));
    const auto b = world.submit(3, tokens(4)), c = world.submit(3, tokens(4));
    run_step(world);  // b and c have emitted: they may be taken
    REQUIRE(world.launch());
    world.abort(a);  // its two blocks wait for step 2
    world.deliver_all();
    REQUIRE(world.core().stats().deferred_blocks == 2);
    CHECK_FALSE(world.launch());  // b and c need one more each
    world.deliver_all();
    CHECK_FALSE(world.launch());
    CHECK(world.core().stats().running == 2);
    world.complete();
    world.deliver_all();
    REQUIRE(world.launch());
    CHECK(world.newest_plan().sequences == std::vector<seq_id>{b, c});
    check_finish(world);
    CHECK(world.core().stats().preemptions == 0);
  }
}

TEST_CASE("who is alone is never preempted: it grows to the last block and ends there [I56]") {
  for (std::int32_t depth = 1; depth <= 3; ++depth) {
    CAPTURE(depth);
    auto config = small_config();
    config.depth = depth;
    config.num_kv_blocks = 3;
    rank_world world(config);
    const auto a = world.submit(4, tokens(100));
    check_finish(world);
    CHECK(world.view(a).preemptions == 0);
    CHECK(world.view(a).finish.reason == finish_reason::resource);
    CHECK(world.view(a).finish.code == errc::no_blocks);
    CHECK(world.view(a).got.size() == 9);  // positions 0..11 are full, the ninth has none
  }
}

TEST_CASE("a preempted sequence keeps its place: it comes back before those that came after it "
          "[I57]") {
  for (const auto rule : {preempt_rule::deliver, preempt_rule::drop}) {
    auto config = small_config();
    config.max_num_seqs = 1;
    config.policy.preempt_output = rule;
    rank_world world(config);
    const auto a = world.submit(3, tokens(9));
    const auto b = world.submit(3, tokens(2)), urgent = world.submit(3, tokens(1), 0, 1);
    run_step(world);  // `urgent` came last and goes first
    CHECK(world.view(urgent).finals == 1);
    run_step(world);
    REQUIRE(world.launch());
    world.preempt(a);
    const auto later = world.submit(3, tokens(2));
    while (world.core().in_flight() > 0) world.complete();
    for (std::int32_t turns = 0; turns < 4 && world.view(a).launches < 3; ++turns) {
      world.deliver_all();
      world.launch();
    }
    CHECK(world.view(a).launches == 3);
    CHECK(world.newest_plan().sequences == std::vector<seq_id>{a});
    CHECK(world.view(b).launches == 0);
    check_finish(world);
    CHECK(world.view(a).got.size() == 9);
    CHECK(world.view(b).first_token_step < world.view(later).first_token_step);
  }
}

TEST_CASE("a smaller depth needs less room, and each table gives back its tail, once [I13]") {
  auto config = small_config();
  config.depth = 3;
  config.block_size = 1;
  config.num_drafts = 2;
  rank_world world(config);
  const auto a = world.submit(3, tokens(60)), b = world.submit(5, tokens(60));
  for (std::int32_t turns = 0; turns < 6; ++turns) {
    world.deliver_all();
    while (world.launch()) {
    }
    world.complete();
  }
  for (const auto id : {a, b}) world.view(id).accept = {0};  // three wide, one further
  while (world.core().in_flight() > 0) world.complete();
  world.deliver_all();
  while (world.launch()) {
  }
  world.core().set_depth(1);
  while (world.core().in_flight() > 0) world.complete();
  // No more than a row of three positions needs behind what is committed.
  for (const auto id : {a, b}) {
    const auto& sequence = *world.core().find(id);
    CHECK(sequence.lease.block_count() <= sequence.ledger.committed() + 3);
  }
  world.core().set_depth(3);
  check_finish(world);
  CHECK(world.view(a).got.size() == 60);
}

TEST_CASE(
  "a preempted sequence delivers rows of the life it lost, not of the one that failed before "
  "[I19][I35][I53]") {
  auto config = small_config();
  config.depth = 3;
  config.policy.on_step_failure = failure_rule::retry;
  config.policy.preempt_output = preempt_rule::deliver;
  rank_world world(config);
  const auto a = world.submit(4, tokens(6));
  world.deliver_all();
  while (world.launch()) {
  }
  world.complete(errc::device_failed);  // what it gave is lost, and steps 2 and 3 stand on it
  world.deliver_all();
  REQUIRE(world.launch());
  world.preempt(a);
  SUBCASE("they settle well") {
    world.complete();
    world.complete();
    CHECK(world.view(a).got.empty());
  }
  SUBCASE("they fail: that takes nothing from the life it lost") {
    world.complete(errc::device_failed);
    world.complete(errc::device_failed);
  }
  world.complete();
  CHECK(world.view(a).got.size() == 1);
  CHECK(world.finish());
  world.check_end();
  CHECK(world.first_fault() == "");
}
