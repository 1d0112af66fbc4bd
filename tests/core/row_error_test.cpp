// A row for which no id can be chosen ends its own sequence: the others of the step go on, nothing
// of it stays behind, and nobody tries it again.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/core/death.hpp"
#include "tests/core/rank_world.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

/// Three requests; the second fails at output `at`.
struct three {
  three(const scheduler_config& config, std::int32_t at, row_error error = row_error::bad_logits)
    : world(config) {
    for (auto& it : ids) it = world.submit(9, tokens(12));
    world.view(ids[1]).fails_at = at;
    world.view(ids[1]).fails_with = error;
  }

  const sequence_finish& finish() { return world.view(ids[1]).finish; }

  void check(std::int32_t at) {
    CHECK(world.finish());
    world.check_end();  // exactly one final record each, and every block and slot is back
    CHECK(world.first_fault() == "");
    CHECK(world.view(ids[0]).got.size() == 12);
    CHECK(world.view(ids[2]).got.size() == 12);
    CHECK(std::ssize(world.view(ids[1]).got) == at - 1);
    CHECK(finish().reason == finish_reason::error);
    CHECK(world.view(ids[1]).finals == 1);
    CHECK(world.core().stats().failed_steps == 0);
  }

  rank_world world;
  seq_id ids[3];
};

}  // namespace

TEST_CASE("a row that gives no id ends its own sequence, behind the tokens it gave before; the "
          "others go on [I35][I39][I76]") {
  for (const std::int32_t depth : {1, 2, 3})
    for (const std::int32_t drafts : {0, 3})
      for (const std::int32_t at : {1, 2, 5})
        for (const auto rule : {failure_rule::fail_rows, failure_rule::retry}) {
          CAPTURE(depth);
          CAPTURE(drafts);
          CAPTURE(at);
          auto config = small_config();
          config.depth = depth;
          config.num_drafts = drafts;
          config.prefix_cache = at == 2;
          config.policy.on_step_failure = rule;
          three play(config, at);
          play.check(at);
          CHECK(play.finish().code == errc::device_failed);
          // Launched rows behind the failure are all that was done for it: no step was repeated.
          CHECK(play.world.view(play.ids[1]).launches <= at + depth - 1);
        }
}

TEST_CASE("the error of a row names its cause, and says whose fault it was [I76]") {
  struct cause {
    row_error error;
    errc code;
    const char* message;
  };
  const cause table[] = {
    {row_error::bad_logits, errc::device_failed,
     "step 2: the logits, with the request's logit_bias and penalties, are not finite"},
    {row_error::no_candidate, errc::invalid_argument,
     "step 2: no id is left to choose: stop ids before min_tokens and the grammar mask all of "
     "them"},
    {row_error::bad_history, errc::device_failed,
     "step 2: an id before the token is not of the vocabulary"},
  };
  for (const auto& row : table) {
    CAPTURE(std::string(row.message));
    three play(small_config(), 2, row.error);
    play.check(2);
    CHECK(play.finish().code == row.code);
    CHECK(play.finish().message == row.message);
  }
}

TEST_CASE("a stop before the failure in the same run is a stop [I36]") {
  auto config = small_config();
  config.num_drafts = 3;
  rank_world world(config);
  const auto a = world.submit(6, tokens(20), 3);
  world.view(a).accept = {3};
  world.view(a).fails_at = 4;
  CHECK(world.finish());
  world.check_end();
  CHECK(world.first_fault() == "");
  CHECK(world.view(a).finish.reason == finish_reason::stop);
  CHECK(world.view(a).got.size() == 3);
}

TEST_CASE("a preempted sequence whose row fails in flight ends with the tokens before it [I53]") {
  for (const auto rule : {preempt_rule::deliver, preempt_rule::drop}) {
    auto config = small_config();
    config.policy.preempt_output = rule;
    rank_world world(config);
    const auto a = world.submit(6, tokens(20));
    world.view(a).fails_at = 2;
    world.deliver_all();
    REQUIRE(world.launch());
    REQUIRE(world.launch());
    world.preempt(a);
    CHECK(world.finish());
    world.check_end();
    CHECK(world.first_fault() == "");
    CHECK(world.view(a).finish.reason == finish_reason::error);
    CHECK(world.view(a).got.size() == 1);
  }
}

TEST_CASE("blocks of a chunk whose logits were not finite lose their names, and who has begun with "
          "them starts again [I48][I49][I76]") {
  auto config = small_config();
  config.prefix_cache = true;
  // KV does not depend on masks.
  for (const auto error :
       {row_error::bad_logits, row_error::bad_history, row_error::no_candidate}) {
    rank_world world(config);
    world.share_prompts(13);
    const auto a = world.submit(13, tokens(4));
    world.view(a).fails_at = 1;
    world.view(a).fails_with = error;
    world.deliver_all();
    REQUIRE(world.launch());
    world.deliver_all();  // the names of its blocks, pending
    const auto b = world.submit(14, tokens(4));
    world.deliver_all();
    REQUIRE(world.launch());
    CHECK(world.core().find(b)->cached_tokens == 12);
    world.complete();
    CHECK(world.view(a).finals == 1);
    const bool is_doubtful = error != row_error::no_candidate;
    CHECK((world.core().find(b)->phase == sequence_phase::queued) == is_doubtful);
    CHECK(world.finish());
    world.check_end();
    CHECK(world.first_fault() == "");
    CHECK(world.view(b).got.size() == 4);
    CHECK(world.view(b).finals == 1);
  }
}

TEST_CASE("a preempted sequence delivers nothing that was computed behind void blocks [I49][I53]") {
  for (const bool step_fails : {false, true}) {
    CAPTURE(step_fails);
    auto config = small_config();
    config.prefix_cache = true;
    rank_world world(config);
    world.share_prompts(13);
    const auto a = world.submit(13, tokens(4));
    world.view(a).fails_at = step_fails ? 0 : 1;
    world.deliver_all();
    REQUIRE(world.launch());
    world.deliver_all();
    const auto b = world.submit(14, tokens(4));
    world.deliver_all();
    REQUIRE(world.launch());
    REQUIRE(world.core().find(b)->cached_tokens == 12);
    world.preempt(b);
    CHECK(world.core().find(b)->phase == sequence_phase::preempted);
    world.complete(step_fails ? errc::device_failed : errc::ok);
    CHECK(world.core().find(b)->phase == sequence_phase::queued);
    world.complete();
    CHECK(world.view(b).got.empty());
    CHECK(world.finish());
    world.check_end();
    CHECK(world.first_fault() == "");
    CHECK(world.view(b).got.size() == 4);
  }
}

TEST_CASE("a row that says why may give less than it was planned to, others may not [I05]") {
  letter_texts texts;
  scheduler_core core(small_config(), {.texts = &texts});
  const auto prompt = std::make_shared<const std::vector<token_id>>(3, 9);
  for (std::uint64_t id = 1; id <= 2; ++id)
    core.submit({{id}, prompt, std::make_shared<const sampling_params>(), 0}, 0);
  core.grant({{{0}, {1}, {2}, {3}}, {{0}, {1}}});
  step_plan plan;
  REQUIRE(core.plan(plan));
  step_result result;
  result.clear();
  result.step = plan.step;
  result.sequences = plan.sequences;
  result.epochs = plan.epochs;
  result.token_begin = {0, 1, 1};
  result.tokens = {9};
  result.row_errors = {row_error::none, row_error::no_candidate};
  const auto said = death_message([&] {
    auto less = result;
    less.row_errors.clear();
    core.settle(less);
  });
  CHECK(said.find("row 1 of step 1 gave 0 tokens, expected 1..1") != std::string::npos);
  core.settle(result);
  scheduler_outbox box;
  core.take_outbox(box);
  REQUIRE(box.chunks.chunks.size() == 2);
  CHECK(box.chunks.chunks[0].tokens == std::vector<token_id>{9});
  CHECK(!box.chunks.chunks[0].finish);
  CHECK(box.chunks.chunks[1].tokens.empty());
  CHECK(box.chunks.chunks[1].finish->code == errc::invalid_argument);
  core.check_invariants();
}
