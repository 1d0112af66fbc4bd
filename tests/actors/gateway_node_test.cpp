// The gateway before a real rank: several answers, clients that read late or never, long prompts.
#include <doctest/doctest.h>

#include "runtime/base/random.hpp"
#include "tests/actors/hash_node.hpp"
#include "tests/actors/read_answer.hpp"

using namespace deepinfer;

namespace {

generate_request long_text(std::size_t bytes) {
  generate_request out;
  std::string text;
  while (text.size() < bytes) text += "a ";
  out.text = std::move(text);
  out.sampling.max_tokens = 3;
  out.sampling.temperature = 0.0f;
  return out;
}

}  // namespace

TEST_CASE("each answer of a request is the model's, with its own usage and seed [I35]") {
  const auto it = start_hash_node();
  const auto client = it.engine->connect();
  const auto prompt = prompt_ids("a", 9);
  auto request = greedy(prompt, 20);
  request.sampling.n = 4;
  request.sampling.seed = 99;
  auto chunks = client.generate(request).value();
  std::vector<std::vector<token_id>> ids(4);
  std::vector<int> finishes(4);
  std::uint64_t next = 0;
  int lasts = 0;
  while (true) {
    const auto chunk = chunks.next(patience).value();
    if (!chunk) break;
    CHECK(chunk->seq == next++);
    const auto answer = static_cast<std::size_t>(chunk->index);
    REQUIRE(answer < 4);
    CHECK(finishes[answer] == 0);
    ids[answer].insert(ids[answer].end(), chunk->ids.begin(), chunk->ids.end());
    lasts += chunk->is_last ? 1 : 0;
    if (!chunk->finish) continue;
    ++finishes[answer];
    CHECK(chunk->finish->usage.prompt_tokens == 9);
    CHECK(chunk->finish->usage.completion_tokens == 20);
    CHECK(chunk->finish->seed == 99);
    REQUIRE(chunk->timings.has_value());
    CHECK(chunk->timings->queued_us >= 0);
  }
  CHECK(lasts == 1);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(finishes[i] == 1);
    CHECK(ids[i] == expected_ids(prompt, 20));
  }
  check_at_rest(it);
}

TEST_CASE("who reads late is held at its window, holds up nobody and loses nothing [I35][I54]") {
  const auto it = start_hash_node(endless());
  const auto client = it.engine->connect();
  const auto prompt = prompt_ids("a", 9);
  auto request = greedy(prompt, many_tokens);
  request.window = 3;
  auto late = client.generate(request).value();
  auto other = client.generate(greedy(prompt, 300)).value();
  CHECK(test::read_answer(other, patience).ids == expected_ids(prompt, 300));
  // Its sequence runs, and nothing is launched any more: it would else go on until it has ended.
  bool is_held = false;
  for (int turn = 0; turn < 200'000 && !is_held; ++turn) {
    const auto before = client.stats(), after = client.stats();
    REQUIRE(before.has_value());
    REQUIRE(after.has_value());
    is_held = after->running == 1 && after->inflight_steps == 0 && before->steps == after->steps &&
              after->tokens_out > 300;
  }
  CHECK(is_held);
  std::vector<token_id> got;
  for (int i = 0; i < 60; ++i) {
    const auto chunk = late.next(patience).value();
    REQUIRE(chunk.has_value());
    CHECK(chunk->seq == static_cast<std::uint64_t>(i));
    got.insert(got.end(), chunk->ids.begin(), chunk->ids.end());
  }
  CHECK(got.size() >= 60);
  CHECK(got == expected_ids(prompt, static_cast<std::int32_t>(got.size())));
  CHECK(client.cancel(late.id()).value());
  check_at_rest(it);
}

TEST_CASE("who never reads is ended, and others never notice [I12][I54]") {
  auto options = endless();
  options.server.slow_consumer_timeout = std::chrono::milliseconds(20);
  const auto it = start_hash_node(options);
  const auto client = it.engine->connect();
  const auto prompt = prompt_ids("a", 9);
  auto request = greedy(prompt, many_tokens);
  request.window = 2;
  auto unread = client.generate(request).value();
  check_at_rest(it);
  const auto answer = test::read_answer(unread, patience);
  CHECK(answer.finish.reason == finish_reason::error);
  CHECK(answer.finish.code == errc::slow_consumer);
  const auto got = static_cast<std::int32_t>(answer.ids.size());
  CHECK(answer.ids == expected_ids(prompt, got));
  CHECK(answer.finish.usage.completion_tokens == got);
}

TEST_CASE("a long prompt is tokenized elsewhere, with the same outcome as a short one") {
  auto options = endless();
  options.num_kv_blocks = 60'000;
  options.max_num_batched_tokens = 4096;
  options.chunk_size = 2048;
  const auto it = start_hash_node(options);
  const auto client = it.engine->connect();
  const auto few = client.generate_sync(long_text(100), patience);
  REQUIRE_MESSAGE(few.has_value(), few.error().message);
  const auto many = client.generate_sync(long_text(40'000), patience);
  REQUIRE_MESSAGE(many.has_value(), many.error().message);
  CHECK(many->ids.size() == 3);
  CHECK(many->finish.usage.prompt_tokens > 100 * few->finish.usage.prompt_tokens);
  check_at_rest(it);
}

TEST_CASE("long prompts are refused, cancelled and left behind as any other") {
  const auto it = start_hash_node();
  const auto client = it.engine->connect();
  const auto too_long = client.generate(long_text(200'000));
  REQUIRE(!too_long.has_value());
  CHECK(too_long.error().code == errc::context_length_exceeded);
  auto request = long_text(200'000);
  request.request_id = "again";
  for (int i = 0; i < 3; ++i)  // its name is free again
    CHECK(client.generate(request).error().code == errc::context_length_exceeded);

  struct quiet_sink final : chunk_sink {
    void on_accepted(const std::string&) override {}
    void on_chunk(token_chunk) override {}
    void on_error(const error&) override {}
  };
  {
    const auto leaves = it.engine->connect();
    for (int i = 0; i < 4; ++i) leaves.start(long_text(200'000), std::make_shared<quiet_sink>());
    leaves.drop(leaves.start(long_text(200'000), std::make_shared<quiet_sink>()));
  }
  const auto prompt = prompt_ids("a", 9);
  CHECK(client.generate_sync(greedy(prompt, 5), patience)->ids == expected_ids(prompt, 5));
  check_at_rest(it);
}

TEST_CASE("a node may stop while long prompts are being tokenized") {
  auto it = start_hash_node();
  struct counting_sink final : chunk_sink {
    void on_accepted(const std::string&) override {}
    void on_chunk(token_chunk) override {}
    void on_error(const error&) override { ++errors; }
    std::atomic<int> errors{0};
  };
  const auto sink = std::make_shared<counting_sink>();
  {
    const auto client = it.engine->connect();
    for (int i = 0; i < 4; ++i) client.start(long_text(400'000), sink);
    it.engine->stop();
    CHECK(!client.generate(greedy(prompt_ids("a", 3), 1)).has_value());
  }
  it.engine.reset();
  CHECK(sink->errors <= 4);
}
