// Plans that start behind cached blocks, and plans that move blocks: the runner's side of a prefix
// cache.
#include <doctest/doctest.h>

#include <algorithm>

#include "one_sequence.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr std::int32_t block_size = 8;
constexpr std::int32_t drafts = 3;
constexpr std::int32_t depth = 2;

std::unique_ptr<model_runner> runner_of(const weights_ptr& weights, drafter_kind drafter) {
  runner_config config;
  config.depth = depth;
  config.num_drafts = drafts;
  config.drafter = drafter;
  config.max_num_seqs = 4;
  config.state_slots = 4;
  config.max_num_batched_tokens = 128;
  config.max_model_len = 128;
  config.num_kv_blocks = 40;
  config.block_size = block_size;
  config.kernels = kernels_under_test();
  config.prefix_cache = true;
  config.host_blocks = 8;
  return *model_runner::make(weights, config);
}

std::vector<block_id> blocks_from(std::int32_t first) {
  std::vector<block_id> blocks;
  for (std::int32_t i = 0; i < 16; ++i) blocks.push_back(block_id{first + i});
  return blocks;
}

/// The first `count` of `cached`, then own ones.
std::vector<block_id> behind(const std::vector<block_id>& cached, std::int32_t count,
                             std::int32_t own) {
  auto blocks = blocks_from(own);
  std::copy_n(cached.begin(), count, blocks.begin());
  return blocks;
}

}  // namespace

TEST_CASE("a sequence that starts behind cached blocks gives the tokens and drafts of a cold one") {
  for (const auto& weights : {tiny_model(), generated_t1()})
    for (const auto drafter : {drafter_kind::dspark, drafter_kind::ngram, drafter_kind::none}) {
      CAPTURE(static_cast<int>(drafter));
      const auto prompt = random_ids(21, 61, weights->config.vocab_size);
      const auto runner = runner_of(weights, drafter);
      const auto cached = blocks_from(0);
      const auto cold = one_sequence(*runner, prompt, 0, cached).run(0, 64, 8);
      for (const auto& [count, chunk] : {std::pair{1, 64}, {2, 7}, {5, 64}, {7, 1}}) {
        CAPTURE(count);
        const slot_id slot{1};
        const auto own = blocks_from(20);
        runner->poison(own, {&slot, 1});
        CHECK(one_sequence(*runner, prompt, 1, behind(cached, count, 20))
                .run(count * block_size, chunk, 8) == cold);
      }
    }
}

TEST_CASE("a prompt's blocks may come back from the host tier, into others, and go on as cold") {
  const auto weights = generated_t1();
  const auto prompt = random_ids(22, 30, weights->config.vocab_size);
  const auto runner = runner_of(weights, drafter_kind::dspark);
  const auto cached = blocks_from(0);
  const auto cold = one_sequence(*runner, prompt, 0, cached).run(0, 64, 8);
  // Another sequence's step carries the blocks out; they are poison afterwards.
  one_sequence other(*runner, random_ids(23, 10, weights->config.vocab_size), 2, blocks_from(20));
  other.moves = {{cached[0], 5, true}, {cached[1], 2, true}, {cached[2], 0, true}};
  other.run(0, 64, 1);
  const slot_id slots[] = {slot_id{0}, slot_id{1}};
  runner->poison(cached, slots);
  one_sequence warm(*runner, prompt, 1, blocks_from(3));
  warm.moves = {{block_id{5}, 0, false}, {block_id{3}, 5, false}, {block_id{4}, 2, false}};
  CHECK(warm.run(24, 3, 8) == cold);
}

TEST_CASE("a step without rows moves blocks too") {
  const auto weights = generated_t1();
  const auto prompt = random_ids(24, 20, weights->config.vocab_size);
  const auto runner = runner_of(weights, drafter_kind::none);
  const auto cold = one_sequence(*runner, prompt, 0, blocks_from(0)).run(0, 64, 4);
  const auto move = [&](std::vector<block_move> moves) {
    step_plan plan;
    plan.clear();
    plan.step = step_id{1};
    plan.moves = std::move(moves);
    const auto work = runner->stage(std::make_shared<const step_plan>(std::move(plan)));
    for (const auto phase :
         {step_phase::copy_in, step_phase::forward, step_phase::sample, step_phase::copy_out})
      REQUIRE(work->run(phase, inline_stream()).code == errc::ok);
    step_result result;
    runner->collect(*work, result);
  };
  move({{block_id{0}, 7, true}, {block_id{1}, 1, true}});
  runner->poison(blocks_from(0), {});
  move({{block_id{30}, 7, false}, {block_id{31}, 1, false}});
  auto blocks = blocks_from(0);
  blocks[0] = block_id{30};
  blocks[1] = block_id{31};
  CHECK(one_sequence(*runner, prompt, 1, blocks).run(16, 64, 4) == cold);
}

TEST_CASE("sizes of a prefix cache that make no sense are refused") {
  struct sizes_case {
    void (*edit)(runner_config&);
    const char* message;
  };
  const sizes_case table[] = {
    {[](runner_config& it) { it.resume_stride = 0; },
     "resume_stride: found 0, expected 1 to 134217727 blocks of 16"},
    {[](runner_config& it) { it.resume_stride = 134217728; },
     "resume_stride: found 134217728, expected 1 to 134217727 blocks of 16"},
    {[](runner_config& it) { it.host_blocks = -1; },
     "prefix_host_blocks: found -1, expected at least 0"},
    {[](runner_config& it) { it.host_blocks = 1, it.prefix_cache = false; },
     "prefix_host_blocks: found 1, expected 0 without a prefix cache"},
  };
  for (const auto& row : table) {
    CAPTURE(row.message);
    runner_config config;
    config.max_num_seqs = config.state_slots = config.num_kv_blocks = 4;
    config.max_num_batched_tokens = config.max_model_len = 64;
    config.block_size = 16;
    config.prefix_cache = true;
    row.edit(config);
    const auto made = model_runner::make(generated_t1(), config);
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().code == errc::invalid_argument);
    CHECK(made.error().message == row.message);
  }
}
