#include <doctest/doctest.h>

#include <csignal>

#include "tests/actors/hash_node.hpp"
#include "tests/actors/read_answer.hpp"
#include "tests/remote/child_process.hpp"

using namespace deepinfer;
using namespace deepinfer::test;
using namespace std::chrono_literals;

namespace {

client_options to(std::uint16_t port) {
  client_options out;
  out.port = port;
  out.connect_timeout = 20s;  // the machine may be busy
  out.heartbeat_interval = 200ms;
  out.connection_timeout = 20s;
  return out;
}

client reach(const client_options& options) {
  auto out = client::connect(options);
  REQUIRE_MESSAGE(out, out.error().message);
  return *out;
}

bool comes_to_rest(node_process& node) {
  return eventually([&] { return node.process.ask("rest") == "at rest"; });
}

/// Reads until the request has ended; chunks must follow each other.
sequence_finish read_finish(stream& chunks, std::uint64_t next) {
  while (true) {
    const auto chunk = chunks.next(patience);
    REQUIRE_MESSAGE(chunk, chunk.error().message);
    REQUIRE(*chunk);
    CHECK((*chunk)->seq == next++);
    if ((*chunk)->is_last) return *(*chunk)->finish;
  }
}

}  // namespace

TEST_CASE("over the network a node gives the tokens that it gives in its own process") {
  node_process node;
  const auto engine = reach(to(node.port));
  std::vector<stream> open;
  std::vector<std::vector<token_id>> wanted;
  for (std::int32_t i = 0; i < 24; ++i) {
    const auto prompt = prompt_ids("p" + std::to_string(i), 1 + i * 3);
    // Fewer tokens than a window has chunks: nobody reads yet, and the node has two places.
    wanted.push_back(expected_ids(prompt, 1 + i * 2));
    open.push_back(engine.generate(greedy(prompt, 1 + i * 2)).value());
  }
  for (std::size_t i = 0; i < open.size(); ++i) {
    CAPTURE(i);
    const auto answer = read_answer(open[i], patience);
    CHECK(answer.ids == wanted[i]);
    CHECK(answer.finish.reason == finish_reason::length);
    CHECK(answer.finish.usage.completion_tokens == static_cast<std::int32_t>(wanted[i].size()));
  }
  // And many times a window, read as they come.
  const auto prompt = prompt_ids("long", 9);
  CHECK(engine.generate_sync(greedy(prompt, 700), patience)->ids == expected_ids(prompt, 700));
  CHECK(comes_to_rest(node));
  const auto stats = engine.stats();
  REQUIRE(stats);
  CHECK(stats->tokens_out >= 24);
}

TEST_CASE("what a node refuses is refused over the network with code, message and param") {
  node_process node;
  const auto engine = reach(to(node.port));
  const auto refused = engine.generate(greedy({}, 5));
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(refused.error().param == "ids");
  // What a message on the wire cannot say is seen before.
  auto both = greedy(prompt_ids("a", 3), 5);
  both.text = "a";
  CHECK(engine.generate(both).error().message ==
        "input: 2 of text, ids and chat are set, exactly one is needed");
  CHECK(engine.generate({}).error().message ==
        "input: 0 of text, ids and chat are set, exactly one is needed");
  generate_request chat;
  chat.chat = "{\"messages\": [\"\xff\"]}";
  CHECK(engine.generate(chat).error().param == "chat");
  auto request = greedy(prompt_ids("a", 3), many_tokens);
  request.request_id = "twice";
  auto first = engine.generate(request).value();
  const auto second = engine.generate(request);
  REQUIRE(!second);
  CHECK(second.error().param == "request_id");
  const auto unknown = engine.call("no such verb", {});
  REQUIRE(!unknown);
  CHECK(unknown.error().code == errc::not_found);
}

TEST_CASE("a request over the network is cancelled once, with what it had") {
  node_process node;
  const auto engine = reach(to(node.port));
  auto request = greedy(prompt_ids("a", 9), many_tokens);
  request.request_id = "mine";
  auto chunks = engine.generate(request).value();
  REQUIRE(chunks.next(patience).has_value());
  CHECK(engine.cancel("mine").value());
  CHECK(read_finish(chunks, 1).reason == finish_reason::abort);
  CHECK_FALSE(engine.cancel("mine").value());
  CHECK_FALSE(engine.cancel("nobody").value());
  CHECK(comes_to_rest(node));
}

TEST_CASE("a stream that is dropped far away gives its blocks back") {
  node_process node;
  const auto engine = reach(to(node.port));
  {
    auto chunks = engine.generate(greedy(prompt_ids("a", 9), many_tokens)).value();
    REQUIRE(chunks.next(patience).has_value());
    CHECK(node.process.ask("rest") == "busy");
  }
  CHECK(comes_to_rest(node));
}

TEST_CASE("a client that goes away, dropped or killed, leaves no request behind") {
  node_process node;
  {
    const auto engine = reach(to(node.port));
    auto chunks = engine.generate(greedy(prompt_ids("a", 9), many_tokens)).value();
    REQUIRE(chunks.next(patience).has_value());
  }
  CHECK(comes_to_rest(node));
  child_process other("client", child_settings{{"PORT", std::to_string(node.port)}});
  const auto started = other.read();
  REQUIRE_MESSAGE(started.starts_with("started"), started);
  CHECK(node.process.ask("rest") == "busy");
  other.kill();
  CHECK(comes_to_rest(node));
}

TEST_CASE("when a node is killed its requests end with rank_lost, and a new one is found again") {
  auto node = std::make_unique<node_process>();
  const auto port = node->port;
  const auto engine = reach(to(port));
  auto chunks = engine.generate(greedy(prompt_ids("a", 9), many_tokens)).value();
  REQUIRE(chunks.next(patience).has_value());
  node->process.kill();
  const auto finish = read_finish(chunks, 1);
  CHECK(finish.reason == finish_reason::error);
  CHECK(finish.code == errc::rank_lost);
  CHECK(finish.usage.completion_tokens > 0);
  const auto refused = engine.generate(greedy(prompt_ids("a", 9), 5));
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::not_ready);
  CHECK(refused.error().message.find(std::to_string(port)) != std::string::npos);
  node = std::make_unique<node_process>(child_settings{{"PORT", std::to_string(port)}});
  CHECK(eventually([&] { return engine.stats().has_value(); }));
  const auto prompt = prompt_ids("b", 9);
  CHECK(engine.generate_sync(greedy(prompt, 20), patience)->ids == expected_ids(prompt, 20));
}

TEST_CASE("a node that has frozen is noticed by its silence") {
  node_process node;
  auto options = to(node.port);
  options.connection_timeout = 2s;
  const auto engine = reach(options);
  auto chunks = engine.generate(greedy(prompt_ids("a", 9), many_tokens)).value();
  REQUIRE(chunks.next(patience).has_value());
  node.process.signal(SIGSTOP);
  CHECK(read_finish(chunks, 1).code == errc::rank_lost);
  node.process.signal(SIGCONT);
  CHECK(eventually([&] { return engine.stats().has_value(); }));
}

TEST_CASE("a client that has frozen is noticed by its silence, and gives its blocks back") {
  node_process node(child_settings{{"TIMEOUT", "2000"}});
  child_process other("client", child_settings{{"PORT", std::to_string(node.port)}});
  REQUIRE(other.read().starts_with("started"));
  other.signal(SIGSTOP);
  CHECK(comes_to_rest(node));
}

TEST_CASE("a client that takes nothing pauses its own request alone, and loses it in the end") {
  node_process node(child_settings{{"SLOW", "1500"}});
  child_process other("client",
                      child_settings{{"PORT", std::to_string(node.port)}, {"WINDOW", "4"}});
  REQUIRE(other.read().starts_with("started"));
  other.signal(SIGSTOP);
  const auto engine = reach(to(node.port));
  const auto prompt = prompt_ids("b", 9);
  CHECK(engine.generate_sync(greedy(prompt, 300), patience)->ids == expected_ids(prompt, 300));
  CHECK(comes_to_rest(node));
  other.signal(SIGCONT);
  CHECK(other.ask("read") == "slow_consumer");
}

TEST_CASE("a node that closes its door ends requests with server_shutdown") {
  node_process node;
  const auto engine = reach(to(node.port));
  auto chunks = engine.generate(greedy(prompt_ids("a", 9), many_tokens)).value();
  REQUIRE(chunks.next(patience).has_value());
  CHECK(node.process.ask("stop") == "stopped");
  CHECK(read_finish(chunks, 1).code == errc::server_shutdown);
  CHECK(comes_to_rest(node));
}

TEST_CASE("before there is a model, health says how far it is and requests are not_ready") {
  node_process node(child_settings{{"LOADING", "1"}, {"NAME", "slow"}});
  const auto engine = reach(to(node.port));
  CHECK(node.process.ask("loading 0.25 shards") == "noted");
  const auto health = engine.health();
  REQUIRE(health);
  CHECK(health->state == health_state::loading);
  CHECK(health->progress == 0.25);
  CHECK(health->stage == "shards");
  CHECK(health->node == "slow");
  const auto prompt = prompt_ids("a", 9);
  const auto refused = engine.generate(greedy(prompt, 5));
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::not_ready);
  CHECK(refused.error().message.find("25 %: shards") != std::string::npos);
  CHECK(engine.stats().error().code == errc::not_ready);
  CHECK(node.process.ask("attach") == "attached");
  CHECK(engine.generate_sync(greedy(prompt, 5), patience)->ids == expected_ids(prompt, 5));
}

TEST_CASE("a node with keys talks to those who have one") {
  node_process node(child_settings{{"KEYS", "blue=sk-1 sk-2"}});
  for (const auto* key : {"", "sk-3", "blue", "blue=sk-1", "sk-"}) {
    CAPTURE(std::string(key));
    auto options = to(node.port);
    options.api_key = key;
    const auto refused = client::connect(options);
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::unauthenticated);
    CHECK(refused.error().param == "api_key");
  }
  for (const auto* key : {"sk-1", "sk-2"}) {
    auto options = to(node.port);
    options.api_key = key;
    const auto prompt = prompt_ids("a", 9);
    CHECK(reach(options).generate_sync(greedy(prompt, 5), patience)->ids ==
          expected_ids(prompt, 5));
  }
}

TEST_CASE("where nobody answers, connecting ends with not_ready and names the place") {
  std::uint16_t port = 0;
  {
    const node_process node;
    port = node.port;
  }
  auto options = to(port);
  options.connect_timeout = 300ms;
  const auto refused = client::connect(options);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::not_ready);
  CHECK(refused.error().message.find("127.0.0.1:" + std::to_string(port)) != std::string::npos);
}
