#include <doctest/doctest.h>

#include <fmt/format.h>

#include "tests/actors/hash_node.hpp"

using namespace deepinfer;
using namespace std::chrono_literals;

namespace {

/// Reads a stream to its end. Chunks must be numbered without a gap, and only the last one
/// finishes.
generate_result read_to_end(stream& chunks, std::uint64_t next = 0) {
  generate_result out;
  while (true) {
    auto chunk = chunks.next(patience);
    REQUIRE(chunk.has_value());
    if (!*chunk) return out;
    CHECK((*chunk)->seq == next++);
    CHECK(out.finish.reason == finish_reason::none);
    out.add(**chunk);
  }
}

}  // namespace

TEST_CASE(
  "every request gets the model's tokens at every depth, alone and among others [I35][I38]") {
  for (const auto depth : {1, 2, 3}) {
    CAPTURE(depth);
    const auto it = start_hash_node({.depth = depth});
    const auto client = it.engine->connect();
    std::vector<stream> open;
    std::vector<std::vector<token_id>> wanted;
    for (std::int32_t i = 0; i < 24; ++i) {
      const auto prompt = prompt_ids("p" + std::to_string(i), 1 + i * 3);
      wanted.push_back(expected_ids(prompt, 1 + i * 2));
      open.push_back(client.generate(greedy(prompt, 1 + i * 2)).value());
    }
    for (std::size_t i = 0; i < open.size(); ++i) {
      CAPTURE(i);
      const auto answer = read_to_end(open[i]);
      CHECK(answer.ids == wanted[i]);
      CHECK(answer.finish.reason == finish_reason::length);
      CHECK(answer.finish.usage.completion_tokens == static_cast<std::int32_t>(wanted[i].size()));
    }
    check_at_rest(it);
  }
}

TEST_CASE("a cancelled request ends once, with what it had, and gives everything back [I54]") {
  const auto it = start_hash_node(endless());
  const auto client = it.engine->connect();
  const auto prompt = prompt_ids("a", 9);
  auto request = greedy(prompt, many_tokens);
  request.request_id = "mine";
  auto chunks = client.generate(request).value();
  auto first = chunks.next(patience);
  REQUIRE(first.has_value());
  CHECK(client.cancel("mine").value());
  const auto answer = read_to_end(chunks, 1);
  CHECK(answer.finish.reason == finish_reason::abort);
  CHECK_FALSE(client.cancel("mine").value());
  CHECK_FALSE(client.cancel("nobody").value());
  check_at_rest(it);
  CHECK(client.generate_sync(greedy(prompt, 5), patience)->ids == expected_ids(prompt, 5));
}

TEST_CASE("a stream that is dropped cancels its request") {
  const auto it = start_hash_node(endless());
  const auto client = it.engine->connect();
  {
    auto chunks = client.generate(greedy(prompt_ids("a", 9), many_tokens)).value();
    REQUIRE(chunks.next(patience).has_value());
  }
  check_at_rest(it);
  CHECK(it.engine->connect().stats()->tokens_out < many_tokens);
}

TEST_CASE("a refused request leaves nothing behind and the next one works") {
  const auto it = start_hash_node({.num_kv_blocks = 16, .max_model_len = 512});
  const auto client = it.engine->connect();
  const auto refused = client.generate(greedy({}, 5));
  REQUIRE(!refused.has_value());
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(refused.error().param == "ids");
  const auto too_long = client.generate(greedy(prompt_ids("a", 512), 5));
  REQUIRE(!too_long.has_value());
  CHECK(too_long.error().code == errc::context_length_exceeded);
  // It fits the context but never the pool: 16 blocks of 4 tokens.
  const auto too_big = client.generate_sync(greedy(prompt_ids("a", 200), 5), patience);
  REQUIRE(!too_big.has_value());
  CHECK(too_big.error().code == errc::no_blocks);
  const auto prompt = prompt_ids("a", 20);
  CHECK(client.generate_sync(greedy(prompt, 5), patience)->ids == expected_ids(prompt, 5));
  check_at_rest(it);
}

TEST_CASE("a request id in use is refused, and free again afterwards") {
  const auto it = start_hash_node(endless());
  const auto client = it.engine->connect();
  auto request = greedy(prompt_ids("a", 3), many_tokens);
  request.request_id = "twice";
  auto chunks = client.generate(request).value();
  const auto second = client.generate(request);
  REQUIRE(!second.has_value());
  CHECK(second.error().param == "request_id");
  CHECK(client.cancel("twice").value());
  read_to_end(chunks);
  request.sampling.max_tokens = 2;
  CHECK(client.generate_sync(request, patience)->ids.size() == 2);
}

TEST_CASE("a pool that holds one request at a time serves many, in order, without preemption") {
  const auto it = start_hash_node({.max_num_seqs = 4, .num_kv_blocks = 12, .max_model_len = 64});
  const auto client = it.engine->connect();
  std::vector<stream> open;
  for (int i = 0; i < 12; ++i)
    open.push_back(client.generate(greedy(prompt_ids("q" + std::to_string(i), 17), 20)).value());
  for (int i = 0; i < 12; ++i)
    CHECK(read_to_end(open[static_cast<std::size_t>(i)]).ids ==
          expected_ids(prompt_ids("q" + std::to_string(i), 17), 20));
  check_at_rest(it);
}

TEST_CASE("when any actor of the rank dies, started requests end with one error and others go on") {
  for (const auto* victim :
       {"scheduler", "worker", "kv_allocator", "release_collector", "device_gate"}) {
    CAPTURE(std::string(victim));
    const auto it = start_hash_node(endless());
    const auto client = it.engine->connect();
    const auto prompt = prompt_ids("a", 9);
    std::vector<stream> running;
    std::vector<std::size_t> sent;  // to each
    for (int i = 0; i < 2; ++i) {
      running.push_back(client.generate(greedy(prompt, many_tokens)).value());
      const auto first = running.back().next(patience);
      REQUIRE(first.has_value());
      sent.push_back((*first)->ids.size());
    }
    auto queued = client.generate(greedy(prompt, 6)).value();  // given to the replica ahead
    REQUIRE(it.engine->kill(victim).value());
    for (std::size_t i = 0; i < running.size(); ++i) {
      const auto answer = read_to_end(running[i], 1);
      CHECK(answer.finish.reason == finish_reason::error);
      CHECK(answer.finish.code == errc::rank_lost);
      CHECK(answer.finish.usage.prompt_tokens == 9);
      CHECK(answer.finish.usage.completion_tokens ==
            static_cast<std::int32_t>(sent[i] + answer.ids.size()));
    }
    CHECK(read_to_end(queued).ids == expected_ids(prompt, 6));
    check_at_rest(it);
    CHECK(client.stats()->rank_restarts == 1);
  }
}

TEST_CASE("the depth can be set up to the loaded one while requests run, and no further") {
  const auto it = start_hash_node({.depth = 2, .num_kv_blocks = 4096});
  const auto client = it.engine->connect();
  const auto prompt = prompt_ids("a", 9);
  const auto expected = expected_ids(prompt, 400);
  auto chunks = client.generate(greedy(prompt, 400)).value();
  generate_result answer;
  answer.add(**chunks.next(patience));
  for (const std::int32_t depth : {1, 2, 1}) CHECK(it.engine->set_depth(depth).value());
  for (const std::int32_t depth : {0, -1, 3, 2'000'000'000}) {
    CAPTURE(depth);
    const auto refused = it.engine->set_depth(depth);
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::invalid_argument);
    CHECK(refused.error().param == "depth");
    CHECK(
      refused.error().message ==
      fmt::format("depth: found {}, expected 1 to 2, the depth the engine was loaded with", depth));
  }
  const auto rest = read_to_end(chunks, 1).ids;
  answer.ids.insert(answer.ids.end(), rest.begin(), rest.end());
  CHECK(answer.ids == expected);
  check_at_rest(it);
}

TEST_CASE("a node that stops ends open requests with server_shutdown") {
  auto it = start_hash_node(endless());
  auto chunks = it.engine->connect().generate(greedy(prompt_ids("a", 9), many_tokens)).value();
  REQUIRE(chunks.next(patience).has_value());
  it.engine->stop();
  CHECK(read_to_end(chunks, 1).finish.code == errc::server_shutdown);
}

TEST_CASE("a step costs the rank at most ten messages, however many rows it has") {
  for (const std::int32_t rows : {1, 8}) {
    CAPTURE(rows);
    const auto it = start_hash_node({.max_num_seqs = 8, .num_kv_blocks = 4096});
    const auto client = it.engine->connect();
    std::vector<stream> open;
    for (std::int32_t i = 0; i < rows; ++i)
      open.push_back(client.generate(greedy(prompt_ids("a", 9), 800)).value());
    for (auto& chunks : open) read_to_end(chunks);
    check_at_rest(it);
    const auto stats = client.stats();
    REQUIRE(stats->steps >= 800);
    CHECK(stats->step_messages <= 10 * stats->steps);
    CHECK(stats->step_messages >= 5 * stats->steps);
  }
}

TEST_CASE("the trace of a node has a plan, a forward and an arrow for each step") {
  const auto it = start_hash_node();
  REQUIRE(it.engine->connect().generate_sync(greedy(prompt_ids("a", 9), 10), patience).has_value());
  const auto trace = it.engine->trace(100);
  REQUIRE(trace.has_value());
  for (const auto* what :
       {"\"plan 1\"", "\"forward 1\"", "\"sample 1\"", "\"settle 1\"", "\"ph\":\"s\"",
        "\"ph\":\"f\"", "\"kind\":\"prefill\"", "\"kind\":\"decode\""})
    CHECK_MESSAGE(trace->find(what) != std::string::npos, what);
}
