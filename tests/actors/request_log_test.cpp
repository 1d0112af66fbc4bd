// Whatever way a request ends, the log has one line of it.
#include <doctest/doctest.h>

#include "actors/client_state.hpp"
#include "actors/node_state.hpp"
#include "actors/request_log.hpp"
#include "messages/wire.hpp"
#include "tests/actors/hash_node.hpp"
#include "tests/actors/read_answer.hpp"
#include "tests/support/captured_log.hpp"

using namespace deepinfer;
using namespace std::chrono_literals;

namespace {

/// Sequences that a replica of `endless` is sent at a time.
constexpr int endless_capacity = 3;

/// A node whose requests are logged, as in a process that serves.
hash_node served(hash_node_options options = endless()) {
  options.parts.host = std::make_shared<actor_host>();
  return start_hash_node(options);
}

template <class Holds>
void ask_until(Holds&& holds) {
  for (int turn = 0; turn < 200'000; ++turn)
    if (holds()) return;
  FAIL("it never came true");
}

generate_request named(const std::string& id, std::int32_t tokens = 5) {
  auto request = greedy(prompt_ids("a", 9), tokens);
  request.request_id = id;
  return request;
}

/// Tells nobody anything: what is told is not what these tests are about.
class deaf_sink final : public chunk_sink {
public:
  void on_accepted(const std::string&) override {}
  void on_chunk(token_chunk) override {}
  void on_error(const error&) override {}
};

void start(const client& at, generate_request request) {
  at.start(std::move(request), std::make_shared<deaf_sink>());
}

/// Fills the node with requests run0 ... that never end, as far as it has room.
void fill(const client& at) {
  // Until the replica is up all of them wait, and not as many may.
  start(at, named("run0", many_tokens));
  ask_until([&] { return at.stats()->running == 1; });
  for (int i = 1; i < endless_capacity; ++i)
    start(at, named("run" + std::to_string(i), many_tokens));
  ask_until([&] { return at.stats()->running == 2; });
}

bool is_waiting(const client& at, const std::string& id) {
  const auto list = at.requests();
  return list && std::any_of(list->requests.begin(), list->requests.end(),
                             [&](const auto& it) { return it.id == id && it.state == "routing"; });
}

bool is_open(const client& at, const std::string& id) {
  const auto list = at.requests();
  return !list || std::any_of(list->requests.begin(), list->requests.end(),
                              [&](const auto& it) { return it.id == id; });
}

/// The only line of the request, once it has come.
std::string end_line(const captured_log& log, const std::string& id) {
  const auto words = "request " + id + " ";
  ask_until([&] { return !log.lines(words).empty(); });
  const auto lines = log.lines(words);
  CHECK_MESSAGE(lines.size() == 1, id);
  return lines.front();
}

bool holds(const std::string& line, const std::string& words) {
  const bool out = line.find(words) != std::string::npos;
  CHECK_MESSAGE(out, line, " has no ", words);
  return out;
}

}  // namespace

TEST_CASE("a request that has finished, or was refused for what it asks, has one end line") {
  const captured_log log;
  const auto it = served();
  const auto client = it.engine->connect();
  auto request = named("done");
  request.client_request_id = "mine";
  CHECK(client.generate_sync(request, patience).has_value());
  holds(end_line(log, "done"), "client_id=\"mine\" finish=length");
  auto wrong = named("wrong");
  wrong.ids = std::vector<token_id>{-7};
  wrong.client_request_id = "his";
  CHECK_FALSE(client.generate_sync(wrong, patience).has_value());
  holds(end_line(log, "wrong"), "client_id=\"his\" finish=error code=invalid_argument");
  it.engine->stop();
  CHECK(log.lines("request done ").size() == 1);
  CHECK(log.lines("request wrong ").size() == 1);
}

TEST_CASE("a request that ends while it waits in the router has one end line") {
  const captured_log log;
  auto options = endless();
  options.max_queued_requests = 5;  // one at the replica, the others here
  const auto it = served(options);
  const auto client = it.engine->connect();
  fill(client);
  const auto wait = [&](const std::string& id) {
    start(client, named(id));
    ask_until([&] { return is_waiting(client, id); });
  };
  wait("cancelled");
  CHECK(client.cancel("cancelled").value());
  holds(end_line(log, "cancelled"), "finish=abort code=cancelled");
  wait("dropped");
  client.drop("dropped");
  holds(end_line(log, "dropped"), "finish=abort");
  {
    const auto other = it.engine->connect();
    start(other, named("left"));
    ask_until([&] { return is_waiting(client, "left"); });
  }
  ask_until([&] { return !is_open(client, "left"); });
  CHECK(log.lines("request left ").size() == 1);
  for (const auto* id : {"one", "two", "three", "four"}) wait(id);
  start(client, named("full"));
  holds(end_line(log, "full"), "finish=error code=queue_full");
  it.engine->stop();
  for (const auto* id : {"one", "two", "three", "four"})
    holds(end_line(log, id), "finish=error code=server_shutdown");
  for (int i = 0; i < endless_capacity; ++i)
    holds(end_line(log, "run" + std::to_string(i)), "finish=error");
}

TEST_CASE("a request that waited too long, or came to a node that drains, has one end line") {
  const captured_log log;
  auto options = endless();
  options.server.queue_timeout = 500ms;  // those that fill it start in less on a busy machine, too
  const auto it = served(options);
  const auto client = it.engine->connect();
  fill(client);
  start(client, named("late"));
  ask_until([&] { return is_waiting(client, "late"); });
  ask_until([&] { return !is_open(client, "late"); });
  holds(end_line(log, "late"), "finish=error code=overloaded");
  CHECK(client.call(verb::drain, to_wire(number_call{0})).has_value());
  start(client, named("refused"));
  holds(end_line(log, "refused"), "finish=error code=draining");
}

TEST_CASE("a request that is cancelled while it runs, or loses its rank, has one end line") {
  const captured_log log;
  const auto it = served();
  const auto client = it.engine->connect();
  start(client, named("stopped", many_tokens));
  start(client, named("lost", many_tokens));
  ask_until([&] { return client.stats()->running == 2; });
  CHECK(client.cancel("stopped").value());
  holds(end_line(log, "stopped"), "finish=abort");
  ask_until([&] { return client.stats()->steps > 3; });
  REQUIRE(it.engine->kill("scheduler").value());
  holds(end_line(log, "lost"), "finish=error");
  it.engine->stop();
  CHECK(log.lines("request stopped ").size() == 1);
  CHECK(log.lines("request lost ").size() == 1);
}

TEST_CASE("what people and machines read of an end are the same facts, and no line of a client's") {
  ended_request it;
  it.id = "r-1";
  it.client_request_id = "mine\nrequest r-2 finish=stop";
  it.tenant = "blue";
  it.trace_id = trace_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  it.finish = "error";
  it.code = errc::queue_full;
  it.replica = "n1";
  it.prompt_tokens = 7;
  it.seed = 18446744073709551615u;
  it.total_us = 1500;
  CHECK(log_line_of(it) ==
        "request r-1 client_id=\"mine\\nrequest r-2 finish=stop\" tenant=\"blue\" "
        "trace=0af7651916cd43dd8448eb211c80319c finish=error code=queue_full replica=n1 prompt=7 "
        "output=0 seed=18446744073709551615 total_ms=1.5");
  it.id = "a\nrequest b";
  CHECK(log_line_of(it).find("request \"a\\nrequest b\" client_id=") == 0);
  it.id = "r-1";
  std::string fields;
  for (const auto& field : log_fields_of(it))
    if (field.name != "client_request_id") fields += fmt::format("{}={} ", field.name, field.value);
  CHECK(fields == "request_id=r-1 finish_reason=error code=queue_full replica=n1 tenant=blue "
                  "trace_id=0af7651916cd43dd8448eb211c80319c prompt_tokens=7 completion_tokens=0 "
                  "seed=18446744073709551615 total_ms=1.5 ");
  it.seed.reset();  // nobody has given or told one
  CHECK(log_line_of(it).find("seed") == std::string::npos);
  for (const auto& field : log_fields_of(it)) CHECK(field.name != "seed");
}
