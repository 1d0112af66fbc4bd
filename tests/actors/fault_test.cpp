// What happens to requests, blocks and the rank when a step fails, is late, or never ends.
#include <doctest/doctest.h>

#include "tests/actors/faulty_node.hpp"
#include "tests/actors/read_answer.hpp"

using namespace deepinfer;
using namespace std::chrono_literals;

namespace {

/// Reads on to the finish, whatever it is.
sequence_finish finish_of(stream& chunks) {
  while (true) {
    const auto chunk = chunks.next(patience);
    REQUIRE(chunk.has_value());
    REQUIRE(chunk->has_value());
    if ((*chunk)->finish) return *(*chunk)->finish;
  }
}

/// The next request is served as if nothing had happened.
void check_next_request(const hash_node& it) {
  const auto prompt = prompt_ids("next", 9);
  const auto answer = it.engine->connect().generate_sync(greedy(prompt, 6), patience);
  REQUIRE_MESSAGE(answer.has_value(), answer.error().message);
  CHECK(answer->ids == expected_ids(prompt, 6));
  check_at_rest(it);
}

}  // namespace

TEST_CASE("a failed step ends its rows with device_failed, and the next request works") {
  for (const auto depth : {1, 2, 3}) {
    CAPTURE(depth);
    auto options = with_fault({.step = 5});
    options.depth = depth;
    const auto it = start_hash_node(options);
    const auto client = it.engine->connect();
    auto chunks = client.generate(greedy(prompt_ids("a", 9), many_tokens)).value();
    const auto finish = finish_of(chunks);
    CHECK(finish.reason == finish_reason::error);
    CHECK(finish.code == errc::device_failed);
    check_next_request(it);
    CHECK(client.stats()->rank_restarts == 0);
  }
}

TEST_CASE(
  "a row that gives no id ends its request alone: the others of its step get every token, and "
  "all of it comes back [I76]") {
  for (const auto depth : {1, 2, 3}) {
    CAPTURE(depth);
    auto options = with_fault({.step = 6, .of_row = row_error::bad_logits});
    options.depth = depth;
    const auto it = start_hash_node(options);
    const auto client = it.engine->connect();
    std::vector<stream> open;
    std::vector<std::vector<token_id>> prompts;
    for (const auto* name : {"a", "b", "c", "d", "e"}) {
      prompts.push_back(prompt_ids(name, 9));
      open.push_back(client.generate(greedy(prompts.back(), 40)).value());
    }
    int failed = 0;
    for (std::size_t i = 0; i < open.size(); ++i) {
      CAPTURE(i);
      const auto answer = test::read_answer(open[i], patience);
      const bool is_hit = answer.finish.reason == finish_reason::error;
      failed += is_hit;
      const auto expected = expected_ids(prompts[i], 40);
      if (is_hit) {
        CHECK(answer.finish.code == errc::device_failed);
        CHECK(answer.finish.message.find("not finite") != std::string::npos);
        REQUIRE(answer.ids.size() < expected.size());
        CHECK(std::equal(answer.ids.begin(), answer.ids.end(), expected.begin()));
      } else {
        CHECK(answer.ids == expected);
      }
    }
    CHECK(failed == 1);
    check_next_request(it);
    CHECK(client.stats()->rank_restarts == 0);
  }
}

TEST_CASE("a step that is late fails, and its blocks wait until it has ended [I17][I18]") {
  const auto held_at = std::make_shared<barrier>();
  auto options = with_fault({.step = 4, .held_at = held_at});
  options.watchdog = 3s;  // and as long again before the rank would be given up
  const auto it = start_hash_node(options);
  const auto client = it.engine->connect();
  auto chunks = client.generate(greedy(prompt_ids("a", 9), many_tokens)).value();
  held_at->wait_for_arrival();
  const auto finish = finish_of(chunks);
  CHECK(finish.reason == finish_reason::error);
  CHECK(finish.code == errc::device_failed);
  // The device may still write: nothing of the sequence has come back.
  const auto stats = client.stats();
  REQUIRE(stats.has_value());
  CHECK(stats->deferred_blocks > 0);
  CHECK(stats->slots_free < stats->slots_total);
  held_at->open();
  check_next_request(it);
  CHECK(client.stats()->rank_restarts == 0);
}

TEST_CASE("a device that is lost costs the rank, which starts again") {
  const auto it = start_hash_node(with_fault({.step = 4, .is_sticky = true}));
  const auto client = it.engine->connect();
  auto chunks = client.generate(greedy(prompt_ids("a", 9), many_tokens)).value();
  CHECK(finish_of(chunks).code == errc::rank_lost);
  check_next_request(it);
  CHECK(client.stats()->rank_restarts == 1);
}

TEST_CASE("a device gate that dies costs the rank, and the error is the rank's, however often") {
  for (int round = 0; round < 40; ++round) {
    CAPTURE(round);
    const auto it = start_hash_node(endless());
    const auto client = it.engine->connect();
    auto chunks = client.generate(greedy(prompt_ids("a", 9), many_tokens)).value();
    REQUIRE(chunks.next(patience).has_value());
    REQUIRE(it.engine->kill(round % 2 == 0 ? "device_gate" : "worker").value());
    CHECK(finish_of(chunks).code == errc::rank_lost);
  }
}

TEST_CASE("a device that hangs for good costs the rank for good, and everybody is told") {
  const auto held_at = std::make_shared<barrier>();
  auto options = with_fault({.step = 4, .held_at = held_at});
  options.watchdog = 500ms;
  const auto it = start_hash_node(options);
  const auto client = it.engine->connect();
  const auto prompt = prompt_ids("a", 9);
  auto chunks = client.generate(greedy(prompt, many_tokens)).value();
  held_at->wait_for_arrival();
  CHECK(finish_of(chunks).code == errc::device_failed);
  // Queued while the device is in doubt: either the rank's end tells it, or it came too late.
  auto waiting = client.generate(greedy(prompt, 6));
  if (waiting.has_value())
    CHECK(finish_of(*waiting).code == errc::rank_lost);
  else
    CHECK(waiting.error().code == errc::rank_lost);
  const auto refused = client.generate(greedy(prompt, 6));
  REQUIRE(!refused.has_value());
  CHECK(refused.error().code == errc::rank_lost);
  held_at->open();  // so that the device can be taken down
}
