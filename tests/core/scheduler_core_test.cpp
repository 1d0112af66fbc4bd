#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/core/death.hpp"
#include "tests/core/rank_world.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {}  // namespace

TEST_CASE("a request that cannot be served ends with one record that names what was found and "
          "expected [I54]") {
  auto config = small_config();
  config.max_model_len = 20;
  config.num_kv_blocks = 4;
  config.max_queued = 1;
  struct bad_case {
    std::int32_t prompt, max_tokens;
    finish_reason reason;
    errc code;
    const char* said;
  };
  const bad_case table[] = {
    {0, 4, finish_reason::error, errc::invalid_argument, "the prompt is empty"},
    {20, 4, finish_reason::error, errc::context_length_exceeded,
     "has 20 tokens, the context holds 20"},
    {5, 0, finish_reason::error, errc::invalid_argument, "max_tokens is 0, expected at least 1"},
    {17, 5, finish_reason::resource, errc::no_blocks,
     "needs 5 KV blocks (17 tokens), the rank has 4"},
  };
  for (const auto& row : table) {
    rank_world world(config);
    const auto id = world.submit(row.prompt, tokens(row.max_tokens));
    CAPTURE(row.said);
    CHECK(world.view(id).finals == 1);
    CHECK(world.view(id).finish.reason == row.reason);
    CHECK(world.view(id).finish.code == row.code);
    CHECK(world.view(id).finish.message.find(row.said) != std::string::npos);
    CHECK_FALSE(world.core().has_work());
    CHECK(world.first_fault() == "");
  }
  rank_world world(config);
  const auto first = world.submit(5, tokens(4)), second = world.submit(5, tokens(4));
  CHECK(world.view(second).finish.code == errc::queue_full);
  CHECK(world.view(second).finish.message.find("1 requests wait already, at most 1") !=
        std::string::npos);
  world.core().drain();
  const auto third = world.submit(5, tokens(4));
  CHECK(world.view(third).finish.code == errc::draining);
  CHECK(world.finish());
  CHECK(world.view(first).got.size() == 4);
}

TEST_CASE("a prompt id outside the vocabulary is refused, at either end [I27]") {
  for (const token_id bad : {-1, vocab}) {
    letter_texts texts;
    scheduler_core core(small_config(), {.texts = &texts});
    core.submit({{7},
                 std::make_shared<const std::vector<token_id>>(std::vector{9, bad}),
                 std::make_shared<const sampling_params>(),
                 0},
                0);
    scheduler_outbox box;
    core.take_outbox(box);
    REQUIRE(box.chunks.chunks.size() == 1);
    CHECK(box.chunks.chunks[0].finish->code == errc::invalid_argument);
    CHECK(box.chunks.chunks[0].finish->message ==
          "prompt token 1 is id " + std::to_string(bad) + ", expected 0..63");
  }
}

TEST_CASE("a token outside the vocabulary ends its own request only [I27]") {
  letter_texts texts;
  scheduler_core core(small_config(), {.texts = &texts});
  const auto prompt = std::make_shared<const std::vector<token_id>>(3, 9);
  for (std::uint64_t id = 1; id <= 2; ++id)
    core.submit({{id}, prompt, std::make_shared<const sampling_params>(), 0}, 0);
  core.grant({{{0}, {1}, {2}, {3}}, {{0}, {1}}});
  step_plan plan;
  REQUIRE(core.plan(plan));
  core.settle({plan.step, errc::ok, plan.sequences, plan.epochs, {0, 1, 2}, {9, 64}, {}, {}});
  scheduler_outbox box;
  core.take_outbox(box);
  REQUIRE(box.chunks.chunks.size() == 2);
  CHECK(box.chunks.chunks[0].tokens == std::vector<token_id>{9});
  CHECK(box.chunks.chunks[1].tokens.empty());
  CHECK(box.chunks.chunks[1].finish->code == errc::device_failed);
  CHECK(box.chunks.chunks[1].finish->message == "step 1 gave token id 64, expected 0..63");
  core.check_invariants();
}

TEST_CASE("a full pool makes the next request wait, nobody overtakes it, and it starts when the "
          "first has ended [I07]") {
  auto config = small_config();
  config.num_kv_blocks = 5;
  rank_world world(config);
  const auto a = world.submit(9, tokens(4));  // 3 blocks at first
  const auto b = world.submit(9, tokens(4));
  const auto c = world.submit(1, tokens(1));  // would fit beside a
  world.deliver_all();
  while (world.view(a).finals == 0) {
    world.launch();
    world.complete();
    world.deliver_all();
    CHECK(world.view(b).launches == 0);
    CHECK(world.view(c).launches == 0);
  }
  CHECK(world.finish());
  world.check_end();
  CHECK(world.first_fault() == "");
  CHECK(world.view(b).got.size() == 4);
  CHECK(world.view(c).got.size() == 1);
}

TEST_CASE("credit at hand starts nobody past the active limit, and nobody past a head that lacks "
          "room [I07]") {
  struct start_case {
    const char* name;
    std::int32_t max_num_seqs, num_kv_blocks;
    std::vector<std::int32_t> prompts;
    std::vector<seq_id> started;
  };
  const start_case table[] = {
    {"two may be active", 2, 60, {3, 3, 3}, {{1}, {2}}},
    {"the second lacks room, the third would fit", 4, 5, {9, 9, 1}, {{1}}},
    {"all fit", 4, 60, {9, 9, 1}, {{1}, {2}, {3}}},
  };
  for (const auto& row : table) {
    CAPTURE(row.name);
    auto config = small_config();
    config.max_num_seqs = row.max_num_seqs;
    config.num_kv_blocks = row.num_kv_blocks;
    letter_texts texts;
    scheduler_core core(config, {.texts = &texts});
    std::uint64_t id = 0;
    for (const auto prompt : row.prompts) {
      const std::vector<token_id> ids(static_cast<std::size_t>(prompt), 9);
      core.submit({{++id},
                   std::make_shared<const std::vector<token_id>>(ids),
                   std::make_shared<const sampling_params>(tokens(4)),
                   0},
                  0);
    }
    kv_grant all;  // unasked
    for (std::int32_t i = 0; i < row.num_kv_blocks; ++i) all.blocks.push_back({i});
    for (std::int32_t i = 0; i < 16; ++i) all.slots.push_back({i});
    core.grant(all);
    step_plan plan;
    REQUIRE(core.plan(plan));
    CHECK(plan.sequences == row.started);
    core.check_invariants();
  }
}

TEST_CASE("priority decides who starts, then arrival") {
  auto config = small_config();
  config.max_num_seqs = 1;
  rank_world world(config);
  const auto low = world.submit(2, tokens(1), 0, -1);
  const auto first = world.submit(2, tokens(1), 0, 3);
  const auto second = world.submit(2, tokens(1), 0, 3);
  CHECK(world.finish());
  CHECK(world.view(first).first_token_step == 1);
  CHECK(world.view(second).first_token_step == 2);
  CHECK(world.view(low).first_token_step == 3);
}

TEST_CASE("a retiring sequence is not active: the next starts before it has settled [I07]") {
  auto config = small_config();
  config.max_num_seqs = 1;
  config.state_slots = 2;
  rank_world world(config);
  world.submit(3, tokens(1));
  const auto b = world.submit(3, tokens(1));
  world.deliver_all();
  REQUIRE(world.launch());
  CHECK(world.core().stats().retiring == 1);
  CHECK(world.core().stats().running == 0);
  world.deliver_all();
  REQUIRE(world.launch());
  CHECK(world.newest_plan().sequences == std::vector<seq_id>{b});
  CHECK(world.finish());
  world.check_end();
  CHECK(world.first_fault() == "");
}

TEST_CASE("slots held by retiring sequences are not handed out again [I07][I17]") {
  auto config = small_config();
  config.max_num_seqs = 1;
  config.state_slots = 1;
  rank_world world(config);
  world.submit(3, tokens(1));
  world.submit(3, tokens(1));
  world.deliver_all();
  REQUIRE(world.launch());
  world.deliver_all();
  CHECK_FALSE(world.launch());  // active is 0 of 1, but the slot waits for its fence
  CHECK(world.finish());
  world.check_end();
  CHECK(world.first_fault() == "");
}

TEST_CASE("prefill goes first and alone, then decode rows, and a mixed step holds decode rows "
          "before chunks") {
  for (const bool mixed : {false, true}) {
    auto config = small_config();
    config.mixed_steps = mixed;
    config.depth = 1;
    config.max_num_batched_tokens = 8;
    rank_world world(config);
    const auto a = world.submit(4, tokens(9));
    world.deliver_all();
    REQUIRE(world.launch());
    world.complete();
    const auto b = world.submit(9, tokens(9));
    world.deliver_all();
    REQUIRE(world.launch());
    const auto& plan = world.newest_plan();
    CAPTURE(mixed);
    if (mixed) {
      CHECK(plan.kind == step_kind::mixed);
      CHECK(plan.sequences == std::vector<seq_id>{a, b});
      CHECK(plan.widths == std::vector<std::int32_t>{1, 7});
    } else {
      CHECK(plan.kind == step_kind::prefill);
      CHECK(plan.sequences == std::vector<seq_id>{b});
      CHECK(plan.widths == std::vector<std::int32_t>{8});
    }
    CHECK(plan.yields_max.back() == 0);  // not final [I58]
    CHECK(world.finish());
    world.check_end();
    CHECK(world.first_fault() == "");
  }
}

TEST_CASE("decode rows that exceed the budget take turns [I06]") {
  auto config = small_config();
  config.max_num_batched_tokens = 3;
  rank_world world(config);
  for (std::int32_t i = 0; i < 5; ++i) world.submit(1, tokens(30));
  CHECK(world.finish());
  world.check_end();
  CHECK(world.first_fault() == "");
  std::uint64_t first_end = UINT64_MAX, last_end = 0;
  for (const auto& [id, view] : world.views()) {
    CHECK(view.got.size() == 30);
    first_end = std::min<std::uint64_t>(first_end, view.first_token_step);
    last_end = std::max<std::uint64_t>(last_end, view.first_token_step);
  }
  // 5 chunks of 1 token and 29 rows each, three a step: nobody ran to the end before another began.
  CHECK(last_end - first_end <= 2);
  CHECK(world.core().stats().steps <= 2 + (5 * 29 + 2) / 3 + 2);  // the tail is not full
}

TEST_CASE("an abort storm: each known request ends once, its leases return, and an unknown id "
          "changes nothing [I12][I54][I55][I59][K03]") {
  for (std::int32_t depth = 1; depth <= 3; ++depth) {
    auto config = small_config();
    config.depth = depth;
    config.max_num_seqs = 4;
    config.chunk_size = 4;
    rank_world world(config);
    const auto chunked = world.submit(12, tokens(5));  // three chunks
    const auto fin = world.submit(4, tokens(5));       // its only chunk is in flight
    const auto last = world.submit(3, tokens(1));      // retiring
    world.deliver_all();
    REQUIRE(world.launch());
    const auto decoding = world.submit(2, tokens(9));
    const auto queued = world.submit(200, tokens(5));
    world.deliver_all();
    world.launch();
    for (const auto id : {queued, chunked, fin, decoding, last, seq_id{999}}) world.abort(id);
    for (const auto id : {queued, chunked, fin, decoding, last}) {
      CHECK(world.view(id).finals == 1);
      CHECK(world.view(id).finish.reason == finish_reason::abort);
      CHECK(world.view(id).finish.code == errc::cancelled);
      world.abort(id);  // again: no second record
    }
    CAPTURE(depth);
    CHECK_FALSE(world.launch());
    while (world.core().in_flight() > 0) world.complete();
    world.deliver_all();
    world.check_end();
    CHECK(world.first_fault() == "");
    CHECK_FALSE(world.core().has_work());
  }
}

TEST_CASE("blocks of an aborted sequence wait for the newest step that names it [I17][I18]") {
  rank_world world(small_config());
  const auto a = world.submit(6, tokens(9));
  world.deliver_all();
  REQUIRE(world.launch());
  REQUIRE(world.launch());  // steps 1 and 2 name it
  world.abort(a);
  world.deliver_all();
  CHECK(world.collector().parked_blocks() == 2);
  CHECK(world.core().stats().deferred_blocks == 2);
  world.complete();
  world.deliver_all();
  CHECK(world.collector().parked_blocks() == 2);
  world.complete();
  CHECK(world.core().stats().deferred_blocks == 0);
  world.deliver_all();
  CHECK(world.collector().parked_blocks() == 0);
  world.check_end();
  CHECK(world.first_fault() == "");
}

TEST_CASE("a failed step ends its rows, and later rows of their sequences are stale; others go on "
          "[I19][I55]") {
  rank_world world(small_config());
  const auto a = world.submit(4, tokens(6));
  world.deliver_all();
  REQUIRE(world.launch());
  REQUIRE(world.launch());
  const auto b = world.submit(4, tokens(6));
  world.complete(errc::device_failed);
  CHECK(world.view(a).finish.reason == finish_reason::error);
  CHECK(world.view(a).finish.code == errc::device_failed);
  CHECK(world.view(a).finish.message.find("step 1") != std::string::npos);
  CHECK(world.finish());
  world.check_end();
  CHECK(world.first_fault() == "");
  CHECK(world.view(a).got.empty());
  CHECK(world.view(b).got.size() == 6);
  CHECK(world.core().stats().overrun_rows == 0);  // it did not end by itself
}

TEST_CASE("a result told twice is dropped, one out of order is refused [I01][I55]") {
  letter_texts texts;
  scheduler_core core(small_config(), {.texts = &texts});
  core.submit({{1},
               std::make_shared<const std::vector<token_id>>(3, 9),
               std::make_shared<const sampling_params>(),
               0},
              0);
  core.grant({{{0}, {1}}, {{0}}});
  step_plan plan;
  REQUIRE(core.plan(plan));
  const step_result given{plan.step, errc::ok, plan.sequences, plan.epochs, {0, 1}, {9}, {}, {}};
  core.settle(given);
  const auto before = core.stats();
  core.settle(given);
  auto after = core.stats();
  CHECK(after.late_messages == before.late_messages + 1);
  --after.late_messages;
  CHECK(after == before);
  auto ahead = given;
  ahead.step = {3};
  CHECK(death_message([&] { core.settle(ahead); }).find("step 3 settles, the oldest is 2") !=
        std::string::npos);
}

TEST_CASE("a lost rank ends started requests with one error each and returns the others in order "
          "[I54][I55]") {
  auto config = small_config();
  config.max_num_seqs = 2;
  rank_world world(config);
  const auto a = world.submit(4, tokens(6)), b = world.submit(4, tokens(1));
  world.deliver_all();
  REQUIRE(world.launch());  // a runs, b retires
  const auto c = world.submit(4, tokens(6)), d = world.submit(4, tokens(6), 0, 2);
  auto& core = world.core();
  const auto waiting = core.fail_all_started(errc::rank_lost, "rank 3 died");
  scheduler_outbox box;
  core.take_outbox(box);
  REQUIRE(box.chunks.chunks.size() == 2);
  CHECK(box.chunks.chunks[0].sequence == a);
  CHECK(box.chunks.chunks[1].sequence == b);
  for (const auto& chunk : box.chunks.chunks) {
    CHECK(chunk.finish->reason == finish_reason::error);
    CHECK(chunk.finish->code == errc::rank_lost);
    CHECK(chunk.finish->message == "rank 3 died");
    CHECK(chunk.finish->usage.prompt_tokens == 4);
  }
  REQUIRE(waiting.size() == 2);
  CHECK(waiting[0].sequence == d);
  CHECK(waiting[1].sequence == c);
  CHECK_FALSE(core.has_work());
  CHECK_FALSE(box.has_leases());
  step_result late;
  late.clear();
  late.step = {1};
  core.settle(late);
  core.check_invariants();
  for (const auto& request : waiting) core.submit(request, 0);
  core.grant({{{0}, {1}, {2}, {3}, {4}, {5}}, {{0}, {1}}});
  step_plan plan;
  CHECK(core.plan(plan));
  CHECK(plan.sequences == std::vector<seq_id>{d, c});
}

TEST_CASE("paused, nothing is planned and what flies settles; resumed, it goes on") {
  rank_world world(small_config());
  const auto a = world.submit(4, tokens(6));
  world.deliver_all();
  REQUIRE(world.launch());
  world.core().pause();
  CHECK_FALSE(world.launch());
  world.complete();
  CHECK(world.view(a).got.size() == 1);
  CHECK_FALSE(world.launch());
  CHECK(world.finish());  // resumes
  CHECK(world.view(a).got.size() == 6);
}

TEST_CASE("depth is a running value: never more steps in flight than it says") {
  auto config = small_config();
  config.depth = 3;
  rank_world world(config);
  world.submit(4, tokens(40));
  world.deliver_all();
  for (const std::int32_t depth : {3, 1, 2}) {
    world.core().set_depth(depth);
    for (std::int32_t i = 0; i < 6; ++i) {
      while (world.launch()) {
      }
      CHECK(world.core().in_flight() <= std::max(depth, i == 0 ? 3 : 0));
      world.complete();
      world.deliver_all();
      if (i > 2) CHECK(world.core().in_flight() == depth - 1);
    }
  }
  CHECK(world.finish());
  world.check_end();
  CHECK(world.first_fault() == "");
}

TEST_CASE("logprobs leave with their tokens, one to one, cut where the tokens are cut [I36]") {
  letter_texts texts;
  scheduler_core core(small_config(), {.texts = &texts});
  auto params = tokens(5);
  params.logprobs = 0;
  const auto prompt = std::make_shared<const std::vector<token_id>>(3, 9);
  core.submit({{1}, prompt, std::make_shared<const sampling_params>(params), 0}, 0);
  core.submit({{2}, prompt, std::make_shared<const sampling_params>(tokens(5)), 0}, 0);
  core.grant({{{0}, {1}, {2}, {3}}, {{0}, {1}}});
  step_plan plan;
  REQUIRE(core.plan(plan));
  core.settle({plan.step,
               errc::ok,
               plan.sequences,
               plan.epochs,
               {0, 1, 2},
               {9, 10},
               {{{9}, {-0.5f}, {}}, {}},
               {}});
  scheduler_outbox box;
  core.take_outbox(box);
  REQUIRE(box.chunks.chunks.size() == 2);
  REQUIRE(box.chunks.chunks[0].logprobs.size() == 1);
  CHECK(box.chunks.chunks[0].logprobs[0].ids == std::vector<token_id>{9});
  CHECK(box.chunks.chunks[1].logprobs.empty());
}

TEST_CASE("credit is asked for ahead and once, and a steady batch asks rarely") {
  auto config = small_config();
  config.block_size = 16;
  rank_world world(config);
  for (std::int32_t i = 0; i < 4; ++i) world.submit(16, tokens(160));
  std::int32_t asks = 0, steps = 0;
  for (; world.core().has_work(); ++steps) {
    while (world.deliver(2)) ++asks;
    world.deliver_all();
    const auto s = world.core().stats();
    CHECK(s.owed_blocks == 0);
    CHECK(s.credit_blocks <= 4 * 3);
    const bool launched = world.launch();
    if (world.core().in_flight() == 2 || !launched) world.complete();
  }
  world.deliver_all();
  world.check_end();
  CHECK(world.first_fault() == "");
  CHECK(steps >= 160);
  CHECK(asks <= steps / 4);
}
