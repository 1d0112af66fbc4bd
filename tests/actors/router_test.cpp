// A node with several replicas behind one door: who gets a request, what waits, what is lost with a
// replica and what is not, and what operators are told.
#include <doctest/doctest.h>

#include <condition_variable>
#include <future>
#include <mutex>

#include "actors/client_state.hpp"
#include "actors/node_state.hpp"
#include "messages/wire.hpp"
#include "tests/actors/hash_node.hpp"
#include "tests/actors/read_answer.hpp"

using namespace deepinfer;
using namespace std::chrono_literals;

namespace {

/// Who was told what, in order, of all requests that share it.
struct told_events {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> accepted;
  std::map<std::string, sequence_finish> finished;
  std::map<std::string, error> failed;

  template <class Ready>
  void wait_until(Ready&& is_ready) {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, patience, is_ready));
  }
  void wait_for_end(const std::string& id) {
    wait_until([&] { return finished.contains(id) || failed.contains(id); });
  }
};

class telling_sink final : public chunk_sink {
public:
  telling_sink(std::shared_ptr<told_events> to, std::string id)
    : to_(std::move(to)),
      id_(std::move(id)) {}

  void on_accepted(const std::string& id) override {
    note([&] { to_->accepted.push_back(id); });
  }
  void on_chunk(token_chunk chunk) override {
    if (chunk.finish) note([&] { to_->finished[id_] = *chunk.finish; });
  }
  void on_error(const error& failure) override {
    note([&] { to_->failed[id_] = failure; });
  }

private:
  template <class Change>
  void note(Change&& change) {
    const std::lock_guard lock(to_->mutex);
    change();
    to_->changed.notify_all();
  }

  std::shared_ptr<told_events> to_;
  std::string id_;
};

void start(const client& client, const std::shared_ptr<told_events>& events, const std::string& id,
           generate_request request) {
  request.request_id = id;
  client.start(std::move(request), std::make_shared<telling_sink>(events, id));
}

/// Asks until the node says so. Each turn is a round trip; the bound is on turns.
template <class Holds>
void ask_until(Holds&& holds) {
  for (int turn = 0; turn < 200'000; ++turn)
    if (holds()) return;
  FAIL("it never came true");
}

/// A client of a node all of whose replicas are up: before, requests go where one is.
client connect(const hash_node& it) {
  auto out = it.engine->connect();
  ask_until([&] { return out.health()->replicas == static_cast<std::int32_t>(it.runners.size()); });
  return out;
}

/// The router has heard that all requests have ended.
void wait_for_rest(const client& client) {
  ask_until([&] { return client.health()->open_requests == 0; });
}

std::size_t waiting_in_router(const client& client) {
  const auto list = client.requests();
  REQUIRE(list.has_value());
  return static_cast<std::size_t>(
    std::count_if(list->requests.begin(), list->requests.end(),
                  [](const auto& it) { return it.state == "routing"; }));
}

hash_node_options replicas(std::int32_t count, routing_rule rule, hash_node_options options = {}) {
  options.dp_size = count;
  options.server.routing = rule;
  return options;
}

/// Sequences that a replica of `endless` is sent at a time.
constexpr int endless_capacity = 3;

double sent_to(const hash_node& it, const char* replica) {
  return it.counts->value(metric::router_requests_total, {replica});
}

std::int32_t cached_tokens(const client& client, generate_request request) {
  const auto answer = client.generate_sync(std::move(request), patience);
  REQUIRE_MESSAGE(answer.has_value(), answer.error().message);
  return answer->finish.usage.cached_tokens;
}

errc code_of_end(stream& chunks) {
  return test::read_answer(chunks, patience).finish.code;
}

}  // namespace

TEST_CASE("two replicas give every request the tokens that one would") {
  for (const auto rule :
       {routing_rule::prefix, routing_rule::least_load, routing_rule::round_robin}) {
    const auto it = start_hash_node(replicas(2, rule));
    const auto client = connect(it);
    std::vector<stream> open;
    std::vector<std::vector<token_id>> wanted;
    for (std::int32_t i = 0; i < 40; ++i) {
      const auto prompt = prompt_ids("p" + std::to_string(i), 1 + i * 3);
      wanted.push_back(expected_ids(prompt, 1 + i));
      open.push_back(client.generate(greedy(prompt, 1 + i)).value());
    }
    for (std::size_t i = 0; i < open.size(); ++i) {
      CAPTURE(i);
      CHECK(test::read_answer(open[i], patience).ids == wanted[i]);
    }
    CHECK(sent_to(it, "0") > 0);
    CHECK(sent_to(it, "1") > 0);
    CHECK(sent_to(it, "0") + sent_to(it, "1") == 40);
    check_at_rest(it);
    CHECK(it.counts->value(metric::num_requests_running) == 0);
    CHECK(it.counts->value(metric::num_requests_waiting) == 0);
    const auto stats = client.stats();
    CHECK(stats->kv_blocks_total == 2 * 256);
  }
}

TEST_CASE("a replica that dies loses what it had started; what waits is served by whoever is up") {
  const auto it = start_hash_node(replicas(2, routing_rule::round_robin, endless()));
  const auto client = connect(it);
  std::vector<stream> running;
  for (int i = 0; i < 4; ++i) {  // in turns, two on each
    running.push_back(client.generate(greedy(prompt_ids("a", 9), many_tokens)).value());
    REQUIRE(running.back().next(patience).has_value());
  }
  std::vector<stream> queued;  // behind them, one at each
  for (int i = 0; i < 2; ++i)
    queued.push_back(client.generate(greedy(prompt_ids("q", 9), 6)).value());
  REQUIRE(it.engine->kill("scheduler", 1).value());
  CHECK(code_of_end(running[1]) == errc::rank_lost);
  CHECK(code_of_end(running[3]) == errc::rank_lost);
  CHECK(client.cancel(running[0].id()).value());
  for (auto& chunks : queued)
    CHECK(test::read_answer(chunks, patience).ids == expected_ids(prompt_ids("q", 9), 6));
  CHECK(client.cancel(running[2].id()).value());  // it went on all the time
  check_at_rest(it);
  CHECK(client.stats()->rank_restarts == 1);
}

TEST_CASE("requests beyond what replicas are sent wait, and only so many") {
  auto options = endless();
  options.max_queued_requests = 2;
  const auto it = start_hash_node(options);
  const auto client = connect(it);
  const auto events = std::make_shared<told_events>();
  for (int i = 0; i < options.max_num_seqs; ++i)
    start(client, events, "run" + std::to_string(i), greedy(prompt_ids("a", 9), many_tokens));
  for (int i = 0; i < 3; ++i)
    start(client, events, "wait" + std::to_string(i), greedy(prompt_ids("a", 9), 5));
  events->wait_for_end("wait2");
  CHECK(events->failed.at("wait2").code == errc::queue_full);
  CHECK(events->failed.at("wait2").message == "2 requests wait, at most 2 may");
  CHECK(it.counts->value(metric::queue_rejections_total, {"queue_full"}) == 1);
  CHECK(waiting_in_router(client) == 1);  // the other waits at the replica
  CHECK(sent_to(it, "0") == options.max_num_seqs + 1);
  ask_until([&] { return client.health() && it.counts->value(metric::num_requests_waiting) == 2; });

  // One that waits can be cancelled: its replica never hears of it.
  CHECK(client.cancel("wait1").value());
  events->wait_for_end("wait1");
  CHECK(events->finished.at("wait1").reason == finish_reason::abort);
  CHECK(it.counts->value(metric::request_aborts_total, {"queued"}) == 1);
  CHECK(it.counts->value(metric::request_success_total, {"abort"}) == 1);
  CHECK_FALSE(client.cancel("wait1").value());
  for (int i = 0; i < options.max_num_seqs; ++i)
    CHECK(client.cancel("run" + std::to_string(i)).value());
  events->wait_for_end("wait0");
  CHECK(events->finished.at("wait0").reason == finish_reason::length);
  CHECK(sent_to(it, "0") == options.max_num_seqs + 1);
  check_at_rest(it);
}

TEST_CASE("a client that leaves takes its waiting requests along") {
  const auto it = start_hash_node(endless());
  const auto client = connect(it);
  const auto events = std::make_shared<told_events>();
  for (int i = 0; i < endless_capacity; ++i)
    start(client, events, "run" + std::to_string(i), greedy(prompt_ids("a", 9), many_tokens));
  ask_until([&] { return client.health()->open_requests == endless_capacity; });
  {
    const auto of_other = std::make_shared<told_events>();
    const auto other = it.engine->connect();
    for (int i = 0; i < 3; ++i)
      start(other, of_other, "other" + std::to_string(i), greedy(prompt_ids("a", 9), 5));
    ask_until([&] { return waiting_in_router(client) == 3; });
    for (int i = 0; i < 3; ++i) other.drop("other" + std::to_string(i));
    ask_until([&] { return waiting_in_router(client) == 0; });
    start(other, of_other, "last", greedy(prompt_ids("a", 9), 5));
    ask_until([&] { return waiting_in_router(client) == 1; });
    it.engine->connect().cancel("last");
    of_other->wait_for_end("last");
  }
  CHECK(sent_to(it, "0") == endless_capacity);
}

TEST_CASE("a request that waits too long is refused with overloaded") {
  auto options = endless();
  options.server.queue_timeout = 50ms;
  const auto it = start_hash_node(options);
  const auto client = connect(it);
  const auto events = std::make_shared<told_events>();
  for (int i = 0; i < endless_capacity; ++i)
    start(client, events, "run" + std::to_string(i), greedy(prompt_ids("a", 9), many_tokens));
  start(client, events, "late", greedy(prompt_ids("a", 9), 5));
  events->wait_for_end("late");
  CHECK(events->failed.at("late").code == errc::overloaded);
  CHECK(events->failed.size() == 1);  // those that run go on
  CHECK(it.counts->value(metric::queue_rejections_total, {"queue_timeout"}) == 1);
}

TEST_CASE("a tenant with many requests does not keep another waiting behind them") {
  for (const bool is_fair : {true, false}) {
    auto options = endless();
    options.server.fair_shares = is_fair;
    const auto it = start_hash_node(options);
    const auto client = connect(it);
    REQUIRE(it.engine->pause().value());
    const auto events = std::make_shared<told_events>();
    auto request = greedy(prompt_ids("a", 9), 5);
    request.tenant = "many";
    for (int i = 0; i < 40; ++i) start(client, events, "m" + std::to_string(i), request);
    ask_until([&] { return waiting_in_router(client) == 40 - endless_capacity; });
    request.tenant = "few";
    start(client, events, "few", request);
    ask_until([&] { return waiting_in_router(client) == 41 - endless_capacity; });
    REQUIRE(it.engine->resume().value());
    events->wait_until([&] { return events->finished.size() == 41; });
    const auto& order = events->accepted;
    const auto place = std::find(order.begin(), order.end(), "few") - order.begin();
    if (is_fair)
      CHECK(place <= endless_capacity + 2);
    else
      CHECK(place == 40);
  }
}

TEST_CASE("a session stays with its replica, and a prefix goes where it is cached") {
  auto options = replicas(2, routing_rule::prefix);
  options.prefix_cache = true;
  const auto it = start_hash_node(options);
  const auto client = connect(it);
  const auto known = prompt_ids("known", 200);
  CHECK(cached_tokens(client, greedy(known, 2)) == 0);
  CHECK(sent_to(it, "0") == 1);
  wait_for_rest(client);
  // Load on replica 0, so that without its prefix the next request would go to 1.
  REQUIRE(it.engine->pause(0).value());
  const auto events = std::make_shared<told_events>();
  start(client, events, "load", greedy(prompt_ids("other", 9), 50));
  auto again = known;
  again.push_back(7);
  start(client, events, "again", greedy(again, 2));
  start(client, events, "elsewhere", greedy(prompt_ids("new", 200), 2));
  events->wait_for_end("elsewhere");
  CHECK(sent_to(it, "0") == 3);
  CHECK(sent_to(it, "1") == 1);
  REQUIRE(it.engine->resume(0).value());
  events->wait_for_end("again");
  CHECK(events->finished.at("again").usage.cached_tokens >= 196);

  wait_for_rest(client);
  auto talk = greedy(prompt_ids("talk", 9), 2);
  talk.session = "s";
  REQUIRE(it.engine->pause(0).value());
  start(client, events, "load again", greedy(prompt_ids("more", 9), 50));
  start(client, events, "turn 1", talk);  // least loaded: 1
  events->wait_for_end("turn 1");
  REQUIRE(it.engine->resume(0).value());
  events->wait_for_end("load again");
  wait_for_rest(client);
  start(client, events, "turn 2", talk);  // both idle: without a session it would be 0
  events->wait_for_end("turn 2");
  CHECK(sent_to(it, "1") == 3);
  wait_for_rest(client);
}

TEST_CASE("a reset of the prefix cache empties that of every replica") {
  auto options = replicas(2, routing_rule::round_robin);
  options.prefix_cache = true;
  const auto it = start_hash_node(options);
  const auto client = connect(it);
  const auto request = greedy(prompt_ids("known", 200), 2);
  for (const auto wanted : {0, 0, 196, 196}) CHECK(cached_tokens(client, request) == wanted);
  const auto reply = client.call(verb::reset_prefix_cache, {});
  REQUIRE(reply.has_value());
  CHECK(from_wire<text_reply>(*reply)->text == "2 replicas reset");
  for (const auto wanted : {0, 0, 196}) CHECK(cached_tokens(client, request) == wanted);
}

TEST_CASE("a drain refuses what is new, ends when nothing is open, and says what is left") {
  const auto it = start_hash_node(replicas(2, routing_rule::least_load, endless()));
  const auto client = connect(it);
  CHECK(client.health()->state == health_state::ready);
  CHECK(client.health()->replicas == 2);
  auto first = client.generate(greedy(prompt_ids("a", 9), many_tokens)).value();
  auto second = client.generate(greedy(prompt_ids("a", 9), many_tokens)).value();
  CHECK(client.drain(1ms).value() == "2 still open");
  CHECK(client.health()->state == health_state::draining);
  CHECK(client.health()->open_requests == 2);
  const auto refused = client.generate(greedy(prompt_ids("a", 9), 5));
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::draining);
  CHECK(it.counts->value(metric::queue_rejections_total, {"draining"}) == 1);

  std::promise<std::string> drained;
  client.call(
    verb::drain, to_wire(number_call{60'000}),
    [&](result<std::string> reply) {
      drained.set_value(from_wire<text_reply>(reply.value())->text);
    },
    patience);
  CHECK(client.cancel(first.id()).value());
  CHECK(client.cancel(second.id()).value());
  CHECK(drained.get_future().get() == "0 open");
  CHECK(client.call(verb::resume, {}).has_value());
  CHECK(client.generate_sync(greedy(prompt_ids("a", 9), 5), patience)->ids ==
        expected_ids(prompt_ids("a", 9), 5));
  CHECK(client.drain(10s).value() == "0 open");
  const auto bad = client.call(verb::drain, to_wire(number_call{-1}));
  REQUIRE(!bad);
  CHECK(bad.error().code == errc::invalid_argument);
}

TEST_CASE("a node that stops ends waiting requests with server_shutdown, too") {
  auto it = start_hash_node(endless());
  const auto client = connect(it);
  const auto events = std::make_shared<told_events>();
  for (int i = 0; i < endless_capacity + 3; ++i)
    start(client, events, std::to_string(i), greedy(prompt_ids("a", 9), many_tokens));
  ask_until([&] { return waiting_in_router(client) == 3; });
  it.engine->stop();
  events->wait_until(
    [&] { return events->finished.size() + events->failed.size() == endless_capacity + 3; });
  for (const auto& [id, finish] : events->finished) CHECK(finish.code == errc::server_shutdown);
  for (const auto& [id, failure] : events->failed) CHECK(failure.code == errc::server_shutdown);
  CHECK(events->failed.size() == 3);
}

TEST_CASE("an unknown verb is named, and those of the control actor are its own") {
  const auto it = start_hash_node();
  const auto client = connect(it);
  const auto unknown = client.call("sing", "loud");
  REQUIRE(!unknown);
  CHECK(unknown.error().code == errc::not_found);
  CHECK(unknown.error().message == "verb: found 'sing'");
  auto& inside = it.engine->inside();
  inside.set_control(inside.system().spawn([](control_actor::pointer self) {
    return control_actor::behavior_type{
      [](call_atom, const std::string& verb, const std::string& bytes) {
        return verb + " " + bytes;
      },
      [self](stop_atom) { self->quit(); },
    };
  }));
  CHECK(client.call("sing", "loud").value() == "sing loud");
  CHECK(client.health()->state == health_state::ready);
}

TEST_CASE("a depth that an operator has set holds after the rank has started again") {
  const auto it = start_hash_node({.depth = 2, .num_kv_blocks = 4096});
  const auto client = connect(it);
  CHECK(it.engine->set_depth(1).value());
  REQUIRE(it.engine->kill("worker").value());
  ask_until([&] { return client.stats().value_or(node_stats{}).rank_restarts == 1; });
  CHECK(client.generate_sync(greedy(prompt_ids("a", 9), 100), patience)->ids ==
        expected_ids(prompt_ids("a", 9), 100));
  const auto trace = it.engine->trace(1000).value();
  CHECK(trace.find("\"inflight_steps\":1,") != std::string::npos);
  CHECK(trace.find("\"inflight_steps\":2,") == std::string::npos);
}

TEST_CASE("the trace of a node has the steps of each replica") {
  const auto it = start_hash_node(replicas(2, routing_rule::round_robin));
  const auto client = connect(it);
  for (int i = 0; i < 2; ++i)
    CHECK(client.generate_sync(greedy(prompt_ids("a", 9), 5), patience).has_value());
  const auto trace = it.engine->trace(100).value();
  CHECK(trace.find("rank 0") != std::string::npos);
  CHECK(trace.find("rank 1") != std::string::npos);
}
