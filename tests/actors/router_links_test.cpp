// A router over nodes elsewhere: what their fronts say, refuse, give back and take along.
#include <doctest/doctest.h>

#include <condition_variable>
#include <mutex>

#include "actors/client_state.hpp"
#include "actors/node_state.hpp"
#include "tests/actors/hash_node.hpp"
#include "tests/actors/read_answer.hpp"
#include "tests/support/captured_log.hpp"

using namespace deepinfer;
using namespace std::chrono_literals;

namespace {

/// What a front in a test has been asked, and how it answers.
struct played_front {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> asked;
  std::vector<bool> was_forwarded;
  std::map<std::string, caf::actor> sinks;
  std::vector<std::string> cancelled;
  request_list told;  ///< of what came through it
  errc refusal = errc::ok;

  void wait_for(std::size_t requests) {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, patience, [&] { return asked.size() >= requests; }));
  }
};

front_actor::behavior_type play(front_actor::pointer, std::shared_ptr<played_front> it) {
  return {
    [it](generate_atom, const generate_request& request,
         const caf::actor& sink) -> caf::result<std::string> {
      const std::lock_guard lock(it->mutex);
      it->asked.push_back(request.request_id);
      it->was_forwarded.push_back(request.is_forwarded);
      it->sinks[request.request_id] = sink;
      it->changed.notify_all();
      if (it->refusal != errc::ok) return to_caf({it->refusal, "not here", {}});
      return request.request_id;
    },
    [it](cancel_atom, const std::string& id) {
      const std::lock_guard lock(it->mutex);
      it->cancelled.push_back(id);
      return true;
    },
    [](credit_atom, const std::string&, std::int32_t) {},
    [it](list_atom) {
      const std::lock_guard lock(it->mutex);
      return it->told;
    },
    [](stats_atom) {
      node_stats out;
      out.running = 5;
      return out;
    },
  };
}

struct remote {
  std::shared_ptr<played_front> played = std::make_shared<played_front>();
  front_actor front;
  std::int32_t number = -1;
};

remote add_remote(const hash_node& it, const std::string& name, std::int32_t capacity = 4,
                  bool is_peer = false) {
  remote out;
  auto& inside = it.engine->inside();
  out.number = inside.add_remote(
    {name, capacity, is_peer}, [&](const request_watcher_actor& watcher, std::int32_t number) {
      out.front = inside.system().spawn(play, out.played);
      tell_from_outside(watcher, ready_atom::value, number, true, std::string());
      return out.front;
    });
  return out;
}

template <class... Args>
void tell_router(const hash_node& it, Args&&... args) {
  tell_from_outside(it.engine->inside().door, std::forward<Args>(args)...);
}

/// Ends a request as its front would.
void finish(const hash_node& it, const remote& at, const std::string& id) {
  token_chunk chunk;
  chunk.request_id = id;
  chunk.finish.emplace();
  chunk.finish->reason = finish_reason::stop;
  chunk.is_last = true;
  chunk_list list;
  list.chunks.push_back(std::move(chunk));
  {
    const std::lock_guard lock(at.played->mutex);
    tell_from_outside(at.played->sinks.at(id), chunk_atom::value, std::move(list));
  }
  tell_router(it, started_atom::value, at.number, id, 0);
  tell_router(it, ended_atom::value, at.number, id, request_end{1, "stop", errc::ok});
}

sequence_finish finish_of(stream& chunks) {
  return test::read_answer(chunks, patience).finish;
}

generate_request named(const std::string& id) {
  auto request = greedy(prompt_ids("a", 9), 5);
  request.request_id = id;
  return request;
}

hash_node node_without_replicas(std::shared_ptr<actor_host> host = nullptr) {
  hash_node_options options;
  options.parts.host = std::move(host);
  options.dp_size = 0;
  options.server.routing = routing_rule::round_robin;
  return start_hash_node(options);
}

}  // namespace

TEST_CASE("a node without replicas refuses requests, and sends them on once it knows others") {
  const auto it = node_without_replicas();
  const auto client = it.engine->connect();
  const auto refused = client.generate(named("a"));
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::not_ready);
  CHECK(client.health()->state == health_state::failed);

  const auto one = add_remote(it, "one");
  const auto two = add_remote(it, "two");
  auto first = client.generate(named("a")).value();
  auto second = client.generate(named("b")).value();
  CHECK(one.played->asked == std::vector<std::string>{"a"});
  CHECK(two.played->asked == std::vector<std::string>{"b"});
  CHECK(client.health()->state == health_state::ready);
  CHECK(client.health()->open_requests == 2);
  CHECK(client.stats()->running == 10);
  CHECK(it.counts->value(metric::router_requests_total, {"two"}) == 1);
  const auto list = client.requests().value();
  REQUIRE(list.requests.size() == 2);
  CHECK(list.requests[0].id == "a");
  CHECK(list.requests[0].state == "queued");
  CHECK(client.cancel("b").value());
  CHECK(two.played->cancelled == std::vector<std::string>{"b"});
  finish(it, one, "a");
  CHECK(finish_of(first).reason == finish_reason::stop);
  finish(it, two, "b");
  CHECK(finish_of(second).reason == finish_reason::stop);
}

TEST_CASE("a list of requests has what links know of those that nodes elsewhere run") {
  const auto it = node_without_replicas();
  const auto client = it.engine->connect();
  const auto one = add_remote(it, "one");
  auto asked = named("given");
  asked.sampling.seed = 9;
  auto given = client.generate(asked).value();
  auto drawn = client.generate(named("drawn")).value();
  const auto before = client.requests().value();
  for (const auto& info : before.requests) {
    CHECK(info.output_tokens == 0);
    CHECK(info.seed == (info.id == "given" ? std::optional<std::uint64_t>(9) : std::nullopt));
  }
  {
    const std::lock_guard lock(one.played->mutex);
    for (const auto* id : {"given", "drawn", "ended meanwhile"}) {
      auto& info = one.played->told.requests.emplace_back();
      info.id = id;
      info.output_tokens = 3;
      info.seed = info.id == "given" ? 9 : 10;
    }
  }
  tell_router(it, started_atom::value, one.number, std::string("drawn"), 0);
  const auto list = client.requests().value();
  REQUIRE(list.requests.size() == 2);
  for (const auto& info : list.requests) {
    CHECK(info.output_tokens == 3);
    CHECK(info.seed == (info.id == "given" ? 9u : 10u));
    CHECK(info.replica == one.number);
    CHECK(info.state == (info.id == "given" ? "queued" : "decode"));
    CHECK(info.prompt_tokens == 9);
  }
  finish(it, one, "given");
  finish(it, one, "drawn");
}

TEST_CASE("what one node refuses for its own reasons another takes, and its last word counts") {
  const auto it = node_without_replicas();
  const auto client = it.engine->connect();
  const auto one = add_remote(it, "one");
  const auto two = add_remote(it, "two");
  one.played->refusal = errc::queue_full;
  auto chunks = client.generate(named("a")).value();
  CHECK(one.played->asked == std::vector<std::string>{"a"});
  CHECK(two.played->asked == std::vector<std::string>{"a"});
  finish(it, two, "a");
  CHECK(finish_of(chunks).reason == finish_reason::stop);
  two.played->refusal = errc::draining;
  const auto refused = client.generate(named("b"));
  REQUIRE(!refused);
  CHECK((refused.error().code == errc::draining || refused.error().code == errc::queue_full));
  CHECK(it.counts->value(metric::queue_rejections_total,
                         {std::string(name_of(refused.error().code))}) == 1);
  // What is wrong with the request itself is asked of nobody else.
  one.played->refusal = errc::invalid_argument;
  two.played->refusal = errc::invalid_argument;
  const auto before = one.played->asked.size() + two.played->asked.size();
  CHECK(client.generate(named("c")).error().code == errc::invalid_argument);
  CHECK(one.played->asked.size() + two.played->asked.size() == before + 1);
  CHECK(it.counts->value(metric::queue_rejections_total, {"queue_full"}) +
          it.counts->value(metric::queue_rejections_total, {"draining"}) ==
        1);
  CHECK(client.health()->open_requests == 0);
}

TEST_CASE("what a lost node had not started goes elsewhere, and what it had ends with rank_lost") {
  const auto it = node_without_replicas();
  const auto client = it.engine->connect();
  const auto one = add_remote(it, "one");
  auto started = client.generate(named("started")).value();
  auto unstarted = client.generate(named("unstarted")).value();
  auto cancelled = client.generate(named("cancelled")).value();
  tell_router(it, started_atom::value, one.number, std::string("started"), 0);
  CHECK(client.cancel("cancelled").value());
  const auto two = add_remote(it, "two");

  SUBCASE("when its front leaves") {
    caf::anon_send_exit(one.front, caf::exit_reason::kill);
    const auto finish = finish_of(started);
    CHECK(finish.reason == finish_reason::error);
    CHECK(finish.code == errc::rank_lost);
    CHECK(finish.message == "replica one is lost");
  }
  SUBCASE("when it gives them back") {
    tell_router(it, ready_atom::value, one.number, false, std::string("gone away"));
    tell_router(it, returned_atom::value, one.number, std::string("started"));  // never: it started
    tell_router(it, returned_atom::value, one.number, std::string("unstarted"));
    tell_router(it, returned_atom::value, one.number, std::string("cancelled"));
  }
  CHECK(finish_of(cancelled).reason == finish_reason::abort);
  two.played->wait_for(1);
  CHECK(two.played->asked == std::vector<std::string>{"unstarted"});
  finish(it, two, "unstarted");
  CHECK(finish_of(unstarted).reason == finish_reason::stop);
}

TEST_CASE("where the last node is lost for good, what waits is told so") {
  const auto it = node_without_replicas();
  const auto client = it.engine->connect();
  const auto one = add_remote(it, "one", 1);
  auto sent = client.generate(named("sent")).value();
  tell_router(it, ready_atom::value, one.number, false, std::string("its device hangs"));
  tell_router(it, returned_atom::value, one.number, std::string("sent"));
  const auto health = client.health().value();
  CHECK(health.state == health_state::loading);  // it may come back
  CHECK(health.stage == "no replica can take requests; one: its device hangs");
  tell_router(it, gone_atom::value, one.number, std::string("its device hangs"));
  CHECK(finish_of(sent).code == errc::rank_lost);
  CHECK(client.health()->state == health_state::failed);
  CHECK(client.generate(named("late")).error().code == errc::rank_lost);
  // Another one comes, and all is well.
  const auto two = add_remote(it, "two", 1);
  auto next = client.generate(named("next")).value();
  finish(it, two, "next");
  CHECK(finish_of(next).reason == finish_reason::stop);
}

TEST_CASE("a node that is taken out ends what it has and gets nothing more") {
  const auto it = node_without_replicas();
  const auto client = it.engine->connect();
  const auto one = add_remote(it, "one");
  auto chunks = client.generate(named("a")).value();
  it.engine->inside().remove_remote(one.number);
  CHECK(client.generate(named("b")).error().code == errc::not_ready);
  finish(it, one, "a");
  CHECK(finish_of(chunks).reason == finish_reason::stop);
  CHECK(client.health()->open_requests == 0);
}

TEST_CASE("a node that was taken out is let go once the last of its requests has ended") {
  const auto it = node_without_replicas();
  const auto client = it.engine->connect();
  auto& inside = it.engine->inside();
  std::atomic<int> left = 0;
  const auto one = add_remote(it, "one");
  auto again = one;
  again.number = inside.add_remote(
    {"again", 4, false}, [&](const request_watcher_actor& watcher, std::int32_t number) {
      tell_from_outside(watcher, ready_atom::value, number, true, std::string());
      return remote_front(one.front, [&left] { ++left; });
    });
  auto first = client.generate(named("first")).value();
  auto second = client.generate(named("second")).value();  // in turns
  inside.remove_remote(again.number);
  CHECK(client.health()->replicas == 1);
  CHECK(left == 0);
  finish(it, again, "second");
  CHECK(finish_of(second).reason == finish_reason::stop);
  CHECK(client.health()->open_requests == 1);
  CHECK(left == 1);
  tell_router(it, gone_atom::value, again.number, std::string("it was let go"));
  // Its front is still that of another, which is lost with it.
  caf::anon_send_exit(one.front, caf::exit_reason::kill);
  tell_router(it, started_atom::value, one.number, std::string("first"), 0);
  CHECK(finish_of(first).code == errc::rank_lost);
  CHECK(client.health()->stage == "no replica can take requests");
  CHECK(left == 1);
}

TEST_CASE("of what a node elsewhere ran, or took along, this one has one end line, too") {
  const captured_log log;
  const auto it = node_without_replicas(std::make_shared<actor_host>());
  const auto client = it.engine->connect();
  const auto one = add_remote(it, "one");
  auto done = client.generate(named("done")).value();
  auto lost = client.generate(named("lost")).value();
  finish(it, one, "done");
  CHECK(finish_of(done).reason == finish_reason::stop);
  tell_router(it, started_atom::value, one.number, std::string("lost"), 0);
  caf::anon_send_exit(one.front, caf::exit_reason::kill);
  CHECK(finish_of(lost).code == errc::rank_lost);
  CHECK(client.health()->open_requests == 0);
  it.engine->stop();
  const auto of_done = log.lines("request done ");
  REQUIRE(of_done.size() == 1);
  CHECK(of_done[0].find("finish=stop replica=one") != std::string::npos);
  const auto of_lost = log.lines("request lost ");
  REQUIRE(of_lost.size() == 1);
  CHECK(of_lost[0].find("finish=error code=rank_lost replica=one") != std::string::npos);
}

TEST_CASE("what a peer is sent is marked as forwarded, what others are sent is not") {
  const auto it = node_without_replicas();
  const auto client = it.engine->connect();
  for (const bool is_peer : {true, false}) {
    const auto there = add_remote(it, is_peer ? "peer" : "other", 4, is_peer);
    auto chunks = client.generate(named("a")).value();
    CHECK(there.played->was_forwarded == std::vector<bool>{is_peer});
    // This node has no replica of its own: what another sends it is refused, and goes nowhere.
    auto sent_here = named("b");
    sent_here.is_forwarded = true;
    const auto refused = client.generate(sent_here);
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::not_ready);
    CHECK(there.played->asked.size() == 1);
    finish(it, there, "a");
    CHECK(finish_of(chunks).reason == finish_reason::stop);
    it.engine->inside().remove_remote(there.number);
  }
}
