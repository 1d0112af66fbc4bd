// The scheduler core and the prefix cache: where a hit is gone on from, and what is named.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "runtime/core/scheduler_core.hpp"
#include "tests/core/rank_world.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

scheduler_config with_cache() {
  auto config = small_config();
  config.prefix_cache = true;
  return config;
}

void launch_soon(rank_world& world) {
  world.deliver_all();
  if (world.launch()) return;
  world.deliver_all();  // the answer to what the start asked for
  REQUIRE(world.launch());
}

void check_finish(rank_world& world) {
  CHECK(world.finish());
  world.check_end();
  CHECK(world.first_fault() == "");
}

}  // namespace

TEST_CASE(
  "a hit is gone on from right behind its last whole block, and at least one id is computed "
  "[I48]") {
  struct hit_case {
    std::int32_t shared, prompt, stride, cached;
  };
  const hit_case table[] = {
    {14, 14, 1, 12}, {14, 14, 2, 8}, {12, 14, 1, 12}, {11, 14, 1, 8},
    {12, 12, 1, 8},  {4, 14, 1, 4},  {4, 14, 2, 0},   {3, 14, 1, 0},
  };
  for (const bool is_held : {false, true})  // by the first, while the second starts
    for (const auto& row : table) {
      CAPTURE(is_held);
      CAPTURE(row.shared);
      CAPTURE(row.prompt);
      CAPTURE(row.stride);
      auto config = with_cache();
      config.resume_stride = row.stride;
      rank_world world(config);
      world.share_prompts(row.shared);
      world.submit(row.prompt, tokens(is_held ? 30 : 1));
      launch_soon(world);
      world.complete();
      const auto second = world.submit(row.prompt, tokens(3));
      launch_soon(world);
      const auto& plan = world.newest_plan();
      REQUIRE(plan.starts.size() == 1);
      CHECK(plan.starts[0].sequence == second);
      CHECK(plan.starts[0].position == row.cached);
      CHECK(plan.widths.back() == row.prompt - row.cached);
      check_finish(world);
      CHECK(world.view(second).finish.usage.cached_tokens == row.cached);
    }
}

TEST_CASE("only ids that have KV are named: the last output of a block may have none [I48][I50]") {
  for (std::int32_t depth = 1; depth <= 3; ++depth)
    for (std::int32_t outputs = 4; outputs <= 7; ++outputs) {
      CAPTURE(depth);
      CAPTURE(outputs);
      auto config = with_cache();
      config.depth = depth;
      rank_world world(config);
      const auto first = world.submit(3, tokens(outputs));
      CHECK(world.finish());
      auto ids = *world.view(first).request.prompt;
      const auto& got = world.view(first).got;
      ids.insert(ids.end(), got.begin(), got.end());
      const auto written = static_cast<std::int32_t>(ids.size()) - 1;
      ids.insert(ids.end(), {9, 10, 11});
      const auto second = world.submit(ids, tokens(2));  // as the next turn of a chat
      check_finish(world);
      CHECK(world.view(second).finish.usage.cached_tokens == written / 4 * 4);
    }
}

TEST_CASE("a preempted sequence delivers nothing that stands on a cached block whose step failed "
          "[I48][I49][I53]") {
  auto config = with_cache();
  config.policy.on_step_failure = failure_rule::retry;
  config.policy.preempt_output = preempt_rule::deliver;
  rank_world world(config);
  world.share_prompts(8);
  world.submit(9, tokens(4));
  launch_soon(world);
  const auto b = world.submit(9, tokens(4));
  launch_soon(world);  // behind the blocks that the first step writes
  REQUIRE(world.newest_plan().starts.size() == 1);
  REQUIRE(world.newest_plan().starts[0].position == 8);
  world.preempt(b);
  world.complete(errc::device_failed);
  world.complete();
  CHECK(world.view(b).got.empty());
  check_finish(world);
  CHECK(world.view(b).got.size() == 4);
}

TEST_CASE("the names that a failed step gave are taken back, and those of every step behind it "
          "[I49]") {
  auto config = with_cache();
  config.depth = 3;
  scheduler_core core(config, {});
  core.submit({{1},
               std::make_shared<const std::vector<token_id>>(9, 20),
               std::make_shared<const sampling_params>(tokens(9)),
               0},
              0);
  scheduler_outbox box;
  core.take_outbox(box);
  REQUIRE(box.want.lookups.size() == 1);
  kv_grant answer;
  answer.hits.push_back({{1}, box.want.lookups[0].epoch, {}, {}, {}});
  for (std::int32_t i = 0; i < 8; ++i) answer.blocks.push_back({i});
  answer.slots = {{0}};
  core.grant(answer);
  step_plan plan;
  for (std::int32_t i = 0; i < 3; ++i) REQUIRE(core.plan(plan));
  core.take_outbox(box);
  CHECK(box.want.publish.blocks.size() == 2);
  CHECK(box.want.retract.empty());
  step_result failed;
  failed.clear();
  failed.step = {1};
  failed.code = errc::device_failed;
  core.settle(failed);
  core.take_outbox(box);
  CHECK(box.want.retract == std::vector<step_id>{{1}, {2}, {3}});
}

TEST_CASE("what a failed step moved between device and host tier is never hit again [I48][I50]") {
  auto config = small_config();
  config.num_kv_blocks = 8;
  config.prefix_cache = true;
  config.policy.on_step_failure = failure_rule::retry;
  rank_world world(config, 1, 4);
  const auto launch = [&world] {
    for (int turn = 0; turn < 5; ++turn) {
      world.deliver_all();
      if (world.launch()) return;
    }
  };
  world.share_prompts(8);
  world.submit(9, tokens(1));
  REQUIRE(world.finish());
  CHECK(world.pool().cached_blocks() == 2);
  world.share_prompts(0);
  const auto large = world.submit(27, tokens(1));
  launch();
  REQUIRE(world.newest_plan().moves.size() == 1);
  REQUIRE(world.newest_plan().moves[0].to_host);
  CHECK(world.pool().host_entries() == 1);
  SUBCASE("on its way to the host") {
    world.complete(errc::device_failed);
    world.deliver_all();
  }
  SUBCASE("on its way back: who began behind it begins again") {
    world.abort(large);
    world.complete();
    world.share_prompts(8);
    const auto b = world.submit(9, tokens(6));
    launch();
    REQUIRE(world.newest_plan().moves.size() == 1);
    REQUIRE(!world.newest_plan().moves[0].to_host);
    REQUIRE(world.newest_plan().sequences == std::vector<seq_id>{b});
    world.complete(errc::device_failed);
    world.deliver_all();
    CHECK(world.view(b).got.empty());
  }
  CHECK(world.pool().host_entries() == 0);
  CHECK(world.pool().cached_blocks() == 0);
  world.share_prompts(8);
  world.submit(9, tokens(6));
  CHECK(world.finish());
  world.check_end();
  CHECK(world.moves_failed == 1);
  CHECK(world.first_fault() == "");
}

TEST_CASE("a prompt without a whole block asks nobody, so it waits for no answer either [I73]") {
  letter_texts texts;
  scheduler_core core(with_cache(), {.texts = &texts});
  kv_grant credit;
  credit.blocks = {{0}, {1}, {2}, {3}};
  credit.slots = {{0}, {1}};
  core.grant(credit);
  core.submit({{1},
               std::make_shared<const std::vector<token_id>>(with_cache().block_size, 9),
               std::make_shared<const sampling_params>(tokens(4)),
               0},
              0);
  step_plan plan;
  CHECK(core.plan(plan));
}
