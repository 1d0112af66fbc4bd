// A gateway's engine: a router over nodes elsewhere, what it counts, tells and lets people change.
#include "actors/peer_engine.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <future>
#include <utility>

#include "actors/actor_host.hpp"
#include "messages/wire.hpp"
#include "runtime/base/metrics.hpp"
#include "tests/actors/hash_node.hpp"
#include "tests/actors/read_answer.hpp"
#include "tests/remote/child_process.hpp"
#include "tests/support/captured_log.hpp"

using namespace deepinfer;
using namespace deepinfer::test;
using namespace std::chrono_literals;

namespace {

struct gateway_engine {
  explicit gateway_engine(std::vector<std::string> addresses) {
    actor_settings network;
    network.heartbeat_interval = 200ms;
    network.connection_timeout = 20s;
    parts.host = actor_host::open(network).value();
    parts.counts = std::make_shared<metrics>();
    auto loaded = make_effective({}).value();
    loaded.settings.engine.max_num_seqs = 1;  // at a node; others wait here
    config = std::make_shared<live_config>(std::move(loaded));
    peer_options peers;
    peers.addresses = std::move(addresses);
    peers.on_nodes = [this](std::size_t up, std::size_t all) {
      nodes_up = up;
      nodes_known = all;
    };
    engine = open_peers(config, peers, parts).value();
  }
  ~gateway_engine() { engine->stop(); }

  double counted(const char* state) const {
    return parts.counts->value(metric::cluster_nodes, {state});
  }
  result<text_reply> set(const std::string& key, const std::string& value) const {
    DI_TRY(const auto bytes,
           engine->connect().call(verb::config_set, to_wire(config_change{key, value})));
    return from_wire<text_reply>(bytes);
  }

  node_parts parts;
  std::shared_ptr<live_config> config;
  std::atomic<std::size_t> nodes_up{99};
  std::atomic<std::size_t> nodes_known{0};
  std::unique_ptr<node> engine;
};

/// What a request is told first.
class first_word final : public chunk_sink {
public:
  void on_accepted(const std::string&) override { say("accepted"); }
  void on_chunk(token_chunk) override {}
  void on_error(const error& failure) override { say(failure.message); }

  std::string wait() {
    auto heard = said_.get_future();
    REQUIRE(heard.wait_for(patience) == std::future_status::ready);
    return heard.get();
  }

private:
  void say(const std::string& word) {
    if (!std::exchange(has_said_, true)) said_.set_value(word);
  }

  std::promise<std::string> said_;
  bool has_said_ = false;
};

std::string address_of(const node_process& it) {
  return "127.0.0.1:" + std::to_string(it.port);
}

}  // namespace

TEST_CASE("a gateway counts its nodes and not itself, and is ready while one of them is") {
  const captured_log log;
  auto first = std::make_unique<node_process>(child_settings{{"NAME", "first"}});
  node_process second(child_settings{{"NAME", "second"}, {"LOADING", "1"}});
  const auto port = first->port;
  // The same address twice is one node.
  gateway_engine gateway({address_of(*first), address_of(second), address_of(*first)});
  const auto client = gateway.engine->connect();
  REQUIRE(eventually([&] { return gateway.nodes_up == 1; }));
  CHECK(gateway.nodes_known == 2);
  CHECK(gateway.counted("up") == 1);
  CHECK(gateway.counted("down") == 1);
  CHECK(client.health()->state == health_state::ready);
  const auto prompt = prompt_ids("a", 9);
  CHECK(client.generate_sync(greedy(prompt, 20), patience)->ids == expected_ids(prompt, 20));

  first->process.kill();
  REQUIRE(eventually([&] { return gateway.nodes_up == 0; }));
  CHECK(gateway.counted("up") == 0);
  CHECK(gateway.counted("down") == 2);
  const auto lost = client.health().value();
  CHECK(lost.state == health_state::loading);  // links try again
  CHECK(lost.stage.find("no replica can take requests; 127.0.0.1:") == 0);
  CHECK(lost.stage.find("the node is loading") != std::string::npos);

  CHECK(second.process.ask("attach") == "attached");
  first = std::make_unique<node_process>(
    child_settings{{"NAME", "first"}, {"PORT", std::to_string(port)}});
  REQUIRE(eventually([&] { return gateway.nodes_up == 2; }));
  CHECK(gateway.counted("up") == 2);
  CHECK(gateway.counted("down") == 0);
  CHECK(log.lines(fmt::format("node {} takes requests, 1 of 2 do", address_of(*first))).size() >=
        1);
  CHECK(log
          .lines(
            fmt::format("node {} takes no requests, 0 of 2 do: the connection", address_of(*first)))
          .size() == 1);
  CHECK(log.lines("takes requests, 2 of 2 do").size() == 1);
  CHECK(log.lines(" takes ").size() == 4);
}

TEST_CASE("a gateway asks another node what one that was lost has not answered") {
  auto first = std::make_unique<node_process>(child_settings{{"NAME", "first"}});
  node_process second(child_settings{{"NAME", "second"}});
  gateway_engine gateway({address_of(*first), address_of(second)});
  REQUIRE(eventually([&] { return gateway.nodes_up == 2; }));
  const auto client = gateway.engine->connect();
  first->process.signal(SIGSTOP);
  auto asked = std::async(std::launch::async, [&] { return client.call(verb::model, ""); });
  const auto is_open = [&] { return asked.wait_for(0s) != std::future_status::ready; };
  // What is asked of the gateway itself comes behind what it has sent on, while the node is silent.
  for (int i = 0; i < 100; ++i) REQUIRE(client.call(verb::config_get, "").has_value());
  CHECK(is_open());
  first->process.kill();
  // The other's own word: these nodes have no desk that knows of models.
  const auto answer = asked.get();
  REQUIRE(!answer);
  CHECK(answer.error().code == errc::not_found);
  CHECK(answer.error().message == "verb: found 'model'");
}

TEST_CASE("a gateway before its first node says why it is not ready") {
  gateway_engine gateway({"127.0.0.1:1"});
  const auto client = gateway.engine->connect();
  REQUIRE(eventually([&] {
    return client.health()->stage == "no replica can take requests; 127.0.0.1:1: nobody answers";
  }));
  CHECK(client.health()->state == health_state::loading);
  CHECK(client.health()->progress == 0.0);
  CHECK(gateway.nodes_up == 0);
  CHECK(gateway.counted("down") == 1);
  CHECK(gateway.counted("up") == 0);
}

TEST_CASE("a gateway tells tokens and seeds of what its nodes run") {
  const captured_log log;
  node_process node(child_settings{{"NAME", "node"}});
  gateway_engine gateway({address_of(node)});
  REQUIRE(eventually([&] { return gateway.nodes_up == 1; }));
  const auto client = gateway.engine->connect();
  auto asked = greedy(prompt_ids("a", 9), many_tokens);
  asked.request_id = "drawn";
  auto chunks = client.generate(asked).value();
  const auto first = chunks.next(patience).value();
  REQUIRE(first.has_value());
  REQUIRE(first->seed.has_value());
  const auto info = [&] {
    const auto list = client.requests();
    REQUIRE(list.has_value());
    REQUIRE(list->requests.size() == 1);
    return list->requests[0];
  };
  CHECK(eventually([&] { return info().output_tokens > 10 && info().state == "decode"; }));
  CHECK(info().seed == first->seed);
  CHECK(client.cancel("drawn").value());
  CHECK(read_answer(chunks, patience).finish.seed == *first->seed);
  REQUIRE(eventually([&] { return !log.lines("request drawn ").empty(); }));
  CHECK(log.lines("request drawn ")[0].find(fmt::format(" seed={} ", *first->seed)) !=
        std::string::npos);
}

TEST_CASE("limits of a gateway's queue change while it runs, what it has no use of is refused") {
  node_process node(child_settings{{"NAME", "node"}});
  gateway_engine gateway({address_of(node)});
  REQUIRE(eventually([&] { return gateway.nodes_up == 1; }));
  const auto client = gateway.engine->connect();
  auto runs = client.generate(greedy(prompt_ids("a", 9), many_tokens)).value();
  const auto in_queue = std::make_shared<first_word>();
  client.start(greedy(prompt_ids("b", 9), 5), in_queue);
  REQUIRE(eventually([&] { return client.stats()->queued > 0; }));
  const auto said = gateway.set("server.max_queued_requests", "1");
  REQUIRE_MESSAGE(said, said.error().message);
  CHECK(said->text == "server.max_queued_requests: 1 instead of 1024");
  CHECK(gateway.config->settings().server.max_queued_requests == 1);
  CHECK(client.generate(greedy(prompt_ids("c", 9), 5)).error().code == errc::queue_full);
  CHECK(client.cancel(runs.id()).value());
  CHECK(in_queue->wait() == "accepted");
  CHECK(gateway.set("observability.log_requests", "off").has_value());

  const auto nothing = gateway.set("server.max_queued_request", "1");
  REQUIRE(!nothing);
  CHECK(nothing.error().code == errc::not_found);
  CHECK(nothing.error().message.find("did you mean 'server.max_queued_requests'?") !=
        std::string::npos);
  const auto restart = gateway.set("server.port", "1");
  REQUIRE(!restart);
  CHECK(restart.error().message.find("server.port: needs a restart") == 0);
  const auto other = gateway.set("engine.victim", "youngest");
  REQUIRE(!other);
  CHECK(other.error().code == errc::invalid_argument);
  CHECK(other.error().message ==
        "engine.victim: a gateway has no use of it; ask its nodes: " + address_of(node));
  CHECK(gateway.config->settings().engine.victim == victim_setting::lowest_cost);
}
