#include <doctest/doctest.h>

#include "runtime/base/random.hpp"
#include "tests/actors/gateway_stage.hpp"

using namespace deepinfer;
using namespace deepinfer::test;
using namespace std::chrono_literals;

namespace {

std::vector<std::string> watched_of(const gateway_stage& stage, const std::string& id) {
  std::vector<std::string> out;
  for (const auto& it : stage.watched)
    if (it.id == id) out.push_back(it.what + " " + std::to_string(it.number));
  return out;
}

gateway_config with(std::chrono::milliseconds queue, std::chrono::milliseconds slow) {
  gateway_config out;
  out.queue_timeout = queue;
  out.slow_consumer_timeout = slow;
  return out;
}

}  // namespace

TEST_CASE("a request with n becomes n sequences, which are ended together") {
  gateway_stage stage;
  CHECK(stage.start(asks("a", 3)).value() == "a");
  REQUIRE(stage.rank.submitted.size() == 3);
  for (std::uint64_t i = 0; i < 3; ++i) {
    CHECK(stage.rank.submitted[i].sequence.value == i + 1);
    CHECK(stage.rank.submitted[i].params->seed == choice_seed(7, static_cast<std::uint32_t>(i)));
    CHECK(stage.rank.submitted[i].prompt == stage.rank.submitted[0].prompt);
  }
  stage.give(batch_of({gives(2, {5}), gives(1, {6}, finish_reason::length)}, {1, 2}));
  CHECK(stage.cancel("a"));
  CHECK(stage.rank.aborted == std::vector<seq_id>{{2}, {3}});
  stage.give(batch_of({gives(3, {}, finish_reason::abort), gives(2, {}, finish_reason::abort)}));
  const auto& chunks = stage.sinks[0]->chunks;
  REQUIRE(chunks.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(chunks[i].seq == i);
    CHECK(chunks[i].is_last == (i == 3));
  }
  CHECK_FALSE(stage.cancel("a"));
  CHECK(watched_of(stage, "a") == std::vector<std::string>{"started 1", "ended 2"});
  CHECK(stage.counts.value(metric::request_aborts_total, {"decode"}) == 1);
  CHECK(stage.list().requests.empty());
}

TEST_CASE("too many answers are refused, by the limit of the node") {
  gateway_config config;
  config.max_n = 2;
  config.max_open_requests = 3;
  gateway_stage stage(std::move(config));
  for (const auto n : {0, 3, 129}) {
    const auto refused = stage.start(asks("a", n));
    REQUIRE(!refused);
    CHECK(refused.error().param == "n");
  }
  CHECK(stage.start(asks("a", 2)).has_value());
  CHECK(stage.start(asks("b", 2)).error().code == errc::queue_full);
  CHECK(stage.start(asks("c")).has_value());
  CHECK(stage.start(asks("d")).error().code == errc::queue_full);
  stage.give(batch_of({gives(1, {5}, finish_reason::length)}));
  CHECK(stage.start(asks("e")).has_value());
}

TEST_CASE("all chunks that one step gives a client are one message") {
  gateway_stage stage;
  for (const auto* id : {"a", "b", "c"}) stage.start(asks(id));
  stage.start(asks("d"), 1);
  stage.give(batch_of({gives(1, {5}), gives(4, {6}), gives(2, {7}), gives(3, {8})}));
  stage.give(batch_of({gives(2, {7})}));
  CHECK(stage.sinks[0]->lists == std::vector<std::size_t>{3, 1});
  CHECK(stage.sinks[1]->lists == std::vector<std::size_t>{1});
  CHECK(stage.sinks[0]->chunks[1].request_id == "b");
}

TEST_CASE("a client that leaves takes its requests along, and no others") {
  gateway_stage stage;
  stage.start(asks("a", 2));
  stage.start(asks("b"), 1);
  stage.start(asks("c"));
  stage.give(batch_of({}, {1}));
  stage.leave(0);
  CHECK(stage.rank.aborted == std::vector<seq_id>{{1}, {2}, {4}});
  CHECK(stage.list().requests.size() == 1);
  CHECK(watched_of(stage, "a") == std::vector<std::string>{"started 1", "ended 0"});
  CHECK(watched_of(stage, "c") == std::vector<std::string>{"ended 0"});
  CHECK(stage.counts.value(metric::request_aborts_total, {"prefill"}) == 1);
  CHECK(stage.counts.value(metric::request_aborts_total, {"queued"}) == 1);
  stage.give(batch_of({gives(1, {}, finish_reason::abort), gives(3, {5}, finish_reason::stop)}));
  CHECK(stage.sinks[1]->chunks.size() == 1);
}

TEST_CASE("a client out of credit holds its own sequences, and loses nothing") {
  gateway_stage stage;
  stage.start(asks("slow", 2, 2));
  stage.start(asks("fast"), 1);
  stage.give(batch_of({gives(1, {5}), gives(2, {6}), gives(3, {7})}, {1, 2, 3}));
  using holds = std::vector<std::pair<seq_id, bool>>;
  CHECK(stage.rank.held == holds{{{1}, true}, {{2}, true}});
  CHECK(stage.counts.value(metric::client_chunks_pending) == 2);
  CHECK(stage.list().requests[0].state == "paused");
  CHECK(stage.list().requests[0].chunks_pending == 2);
  CHECK(stage.list().requests[1].state == "decode");
  // What was launched before still comes.
  stage.give(batch_of({gives(1, {8}), gives(2, {9})}));
  stage.give(batch_of({gives(1, {10}, finish_reason::length)}));
  CHECK(stage.sinks[0]->chunks.size() == 2);
  stage.rank.held.clear();
  stage.take("slow", 1);
  REQUIRE(stage.sinks[0]->chunks.size() == 3);
  CHECK(stage.sinks[0]->chunks[2].ids == std::vector<token_id>{8, 10});
  CHECK(stage.sinks[0]->chunks[2].finish.has_value());
  CHECK(stage.rank.held.empty());
  stage.take("slow", 2);
  REQUIRE(stage.sinks[0]->chunks.size() == 4);
  CHECK(stage.sinks[0]->chunks[3].ids == std::vector<token_id>{9});
  CHECK(stage.rank.held == holds{{{2}, false}});  // the other one has ended
  CHECK(stage.counts.value(metric::client_chunks_pending) == 1);
  stage.give(batch_of({gives(2, {}, finish_reason::stop)}));
  CHECK(stage.sinks[0]->chunks.back().is_last);
  CHECK(stage.counts.value(metric::client_chunks_pending) == 0);
  stage.take("slow", 5);
  stage.take("nobody", 5);
}

TEST_CASE("a request that is not read can be cancelled, also when only its end waits") {
  for (const bool has_ended : {false, true}) {
    CAPTURE(has_ended);
    gateway_stage stage;
    stage.start(asks("a", 1, 1));
    stage.give(batch_of({gives(1, {5})}, {1}));
    stage.give(batch_of({gives(1, {6}, has_ended ? finish_reason::length : finish_reason::none)}));
    CHECK(stage.cancel("a"));
    if (!has_ended) {
      CHECK(stage.rank.aborted == std::vector<seq_id>{{1}});
      stage.give(batch_of({gives(1, {}, finish_reason::abort)}));
    }
    const auto& chunks = stage.sinks[0]->chunks;
    REQUIRE(chunks.size() == 2);
    CHECK(chunks[1].ids == std::vector<token_id>{6});
    CHECK(chunks[1].finish->reason == finish_reason::abort);
    CHECK(chunks[1].is_last);
    CHECK(stage.list().requests.empty());
  }
}

TEST_CASE("a client that takes nothing for too long is ended, one that takes slowly is not") {
  gateway_stage stage(with(0ms, 100ms));
  stage.start(asks("stuck", 1, 1));
  stage.start(asks("slow", 1, 1), 1);
  stage.give(batch_of({gives(1, {5}), gives(2, {5})}, {1, 2}));
  for (int i = 0; i < 8; ++i) {
    stage.give(batch_of({gives(2, {5})}));
    stage.wait(30ms);
    stage.take("slow", 1);
  }
  const auto& chunks = stage.sinks[0]->chunks;
  REQUIRE(chunks.size() == 2);
  CHECK(chunks[1].finish->code == errc::slow_consumer);
  CHECK(chunks[1].finish->message ==
        "the client has taken nothing for 100 ms, 1 chunks wait for it");
  CHECK(stage.rank.aborted == std::vector<seq_id>{{1}});
  CHECK(stage.counts.value(metric::slow_consumer_total) == 1);
  CHECK(stage.list().requests.size() == 1);
  CHECK(stage.counts.value(metric::client_chunks_pending) ==
        stage.list().requests[0].chunks_pending);
}

TEST_CASE("a request that does not start in time is refused, one that has started is not") {
  gateway_stage stage(with(200ms, 0ms));
  stage.start(asks("waits"));
  stage.start(asks("runs"));
  stage.give(batch_of({}, {2}));
  stage.wait(199ms);
  CHECK(stage.sinks[0]->chunks.empty());
  stage.wait(60ms);
  REQUIRE(stage.sinks[0]->chunks.size() == 1);
  CHECK(stage.sinks[0]->chunks[0].request_id == "waits");
  CHECK(stage.sinks[0]->chunks[0].finish->code == errc::overloaded);
  CHECK(stage.sinks[0]->chunks[0].finish->message ==
        "the request has not started within 200 ms, the node's queue_timeout");
  CHECK(stage.rank.aborted == std::vector<seq_id>{{1}});
  CHECK(stage.counts.value(metric::queue_rejections_total, {"queue_timeout"}) == 1);
  stage.wait(5s);
  CHECK(stage.list().requests.size() == 1);
}

TEST_CASE("a gateway without open requests has nothing due") {
  gateway_stage stage(with(200ms, 100ms));
  stage.start(asks("a"));
  stage.give(batch_of({gives(1, {5}, finish_reason::length)}, {1}));
  stage.wait(1s);
  const auto before = stage.now_us;
  stage.wait(1h);  // would loop once a tick
  CHECK(stage.now_us == before + 3'600'000'000);
  CHECK(stage.list().requests.empty());
}

TEST_CASE("what had started ends with a lost rank, what waits for its client or a start goes on") {
  gateway_stage stage({}, false);
  stage.start(asks("runs", 2));
  stage.start(asks("read late", 1, 1), 1);
  stage.start(asks("queued"));
  stage.give(batch_of({gives(1, {5}), gives(3, {6})}, {1, 3}));
  stage.give(batch_of({gives(3, {7}, finish_reason::length)}));
  stage.rank.submitted.clear();
  stage.rank_down();
  CHECK(stage.sinks[0]->chunks.size() == 3);
  for (std::size_t i = 1; i < 3; ++i)
    CHECK(stage.sinks[0]->chunks[i].finish->code == errc::rank_lost);
  stage.give(batch_of({gives(4, {9})}, {4}));  // still on its way from the lost rank
  CHECK(stage.sinks[0]->chunks.size() == 3);
  stage.rank_up();
  REQUIRE(stage.rank.submitted.size() == 1);
  CHECK(stage.rank.submitted[0].sequence.value == 4);
  stage.take("read late", 1);
  CHECK(stage.sinks[1]->chunks.back().finish->reason == finish_reason::length);
  stage.rank_down(true);
  CHECK(stage.sinks[0]->chunks.back().finish->code == errc::rank_lost);
  CHECK(stage.start(asks("late")).error().code == errc::rank_lost);
}

TEST_CASE("a watcher gets back what a lost rank had not started, and may send it again") {
  gateway_stage stage;
  stage.start(asks("runs"));
  stage.start(asks("queued", 2), 1);
  stage.start(asks("cancelled"));
  stage.give(batch_of({}, {1}));
  CHECK(stage.cancel("cancelled"));
  stage.rank_down();
  CHECK(watched_of(stage, "queued") == std::vector<std::string>{"returned 4"});
  CHECK(watched_of(stage, "runs") == std::vector<std::string>{"started 1", "ended 0"});
  CHECK(watched_of(stage, "cancelled") == std::vector<std::string>{"ended 0"});
  CHECK(stage.sinks[1]->chunks.empty());
  CHECK(stage.list().requests.empty());
  stage.rank_up();
  CHECK(stage.start(asks("queued", 2), 1).has_value());
  stage.rank_down(true);
  CHECK(watched_of(stage, "queued") == std::vector<std::string>{"returned 4", "returned 4"});
  CHECK(watched_of(stage, "gone") ==
        std::vector<std::string>{"not ready 4", "not ready 4", "gone 4"});
}

TEST_CASE("a gateway that stops ends what runs and lets go what is complete") {
  gateway_stage stage;
  stage.start(asks("runs"));
  stage.start(asks("complete", 1, 1), 1);
  stage.give(batch_of({gives(1, {5}), gives(2, {6})}, {1, 2}));
  stage.give(batch_of({gives(2, {7}, finish_reason::length)}));
  stage.stop();
  CHECK(stage.sinks[0]->chunks.back().finish->code == errc::server_shutdown);
  CHECK(stage.sinks[1]->chunks.back().finish->reason == finish_reason::length);
  CHECK(stage.sinks[1]->chunks.back().ids == std::vector<token_id>{7});
}

TEST_CASE("open requests are listed in order of arrival, with what they do") {
  gateway_stage stage;
  auto first = asks("z");
  first.client_request_id = "mine";
  first.tenant = "team";
  stage.start(first);
  stage.start(asks("b", 2));
  stage.start(asks("a"));
  stage.give(batch_of({gives(2, {5, 6}), gives(3, {7})}, {1, 2, 3}));
  stage.now_us += 250;
  const auto open = stage.list().requests;
  REQUIRE(open.size() == 3);
  CHECK(open[0].id == "z");
  CHECK(open[0].client_request_id == "mine");
  CHECK(open[0].tenant == "team");
  CHECK(open[0].state == "prefill");
  CHECK(open[0].age_us == 250);
  CHECK(open[0].cached_tokens == 1);
  CHECK(open[0].replica == 4);
  CHECK(open[1].state == "decode");
  CHECK(open[1].prompt_tokens == 3);
  CHECK(open[1].output_tokens == 3);
  CHECK(open[2].state == "queued");
}

TEST_CASE("the time that a request has waited before counts as its own") {
  gateway_stage stage(with(200ms, 0ms));
  auto request = asks("waited");
  request.waited_us = 150'000;
  stage.start(std::move(request));
  CHECK(stage.list().requests.at(0).age_us == 150'000);
  stage.wait(100ms);
  CHECK(stage.sinks[0]->chunks.back().finish->code == errc::overloaded);
}
