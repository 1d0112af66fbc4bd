// Nodes that are each other's peers: what one sends on stays where it was sent.
#include <doctest/doctest.h>

#include <optional>
#include <thread>

#include "actors/actor_host.hpp"
#include "actors/network_doors.hpp"
#include "messages/wire.hpp"
#include "tests/actors/hash_node.hpp"
#include "tests/actors/read_answer.hpp"
#include "tests/remote/child_process.hpp"

using namespace deepinfer;
using namespace deepinfer::test;
using namespace std::chrono_literals;

namespace {

/// A serving node of this process, as `service` puts it together, but for HTTP.
class serving_node {
public:
  explicit serving_node(const std::string& name, std::vector<std::string> peers = {},
                        std::vector<std::string> join = {}) {
    engine_settings settings;
    settings.engine.max_num_seqs = 2;
    settings.actor.port = 0;
    settings.actor.node_name = name;
    settings.actor.peers = std::move(peers);
    settings.actor.join = std::move(join);
    hash_node_options options;
    options.max_num_seqs = settings.engine.max_num_seqs;
    options.server.routing = routing_rule::round_robin;
    options.parts.host = actor_host::open(settings.actor).value();
    doors_ = network_doors::open(options.parts.host, settings).value();
    node_ = start_hash_node(options);
    engine_.emplace(node_.engine->connect());
    const auto attached = doors_->attach(*engine_, *node_.engine);
    REQUIRE_MESSAGE(attached, attached.error().message);
  }
  ~serving_node() {
    doors_->stop();
    engine_.reset();
    node_.engine->stop();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(doors_->port()); }
  const client& engine() const { return *engine_; }
  const hash_node& at() const { return node_; }
  network_doors& doors() { return *doors_; }

  bool knows(std::int32_t replicas) const {
    const auto health = engine().health();
    return health && health->replicas == replicas;
  }

private:
  std::unique_ptr<network_doors> doors_;
  hash_node node_;
  std::optional<client> engine_;
};

struct pair_of_peers {
  serving_node first{"first"};
  serving_node second{"second", {first.address()}, {first.address()}};

  pair_of_peers() {
    REQUIRE(eventually([&] { return first.knows(2) && second.knows(2); }));
  }
};

struct asked {
  std::vector<token_id> prompt;
  stream chunks;
};

/// Starts requests at a node from a thread of their own each: taken or not, none waits for another.
std::vector<generate_result> ask_all(const std::vector<const client*>& at, int count,
                                     std::int32_t tokens) {
  std::vector<generate_result> out(static_cast<std::size_t>(count));
  std::vector<std::jthread> askers;
  for (std::size_t i = 0; i < out.size(); ++i)
    askers.emplace_back([&, i] {
      const auto prompt = prompt_ids("p" + std::to_string(i), 9);
      const auto answer = at[i % at.size()]->generate_sync(greedy(prompt, tokens), patience);
      if (answer)
        out[i] = *answer;
      else
        out[i].finish.message = answer.error().message;
    });
  askers.clear();
  return out;
}

void check_all_answered(const std::vector<generate_result>& answers, std::int32_t tokens) {
  for (std::size_t i = 0; i < answers.size(); ++i) {
    CAPTURE(i);
    CHECK(answers[i].finish.message == "");
    CHECK(answers[i].ids == expected_ids(prompt_ids("p" + std::to_string(i), 9), tokens));
  }
}

void check_rests(const serving_node& it) {
  check_at_rest(it.at());
  CHECK(it.engine().requests()->requests.empty());
  CHECK(it.engine().health()->open_requests == 0);
  CHECK(it.at().counts->value(metric::num_requests_running) == 0);
  CHECK(it.at().counts->value(metric::num_requests_waiting) == 0);
}

double sent(const serving_node& from, const std::string& to) {
  return from.at().counts->value(metric::router_requests_total, {to});
}

}  // namespace

TEST_CASE("two peers of each other answer every request of both, and none is handed back") {
  pair_of_peers it;
  const auto answers = ask_all({&it.first.engine(), &it.second.engine()}, 48, 20);
  check_all_answered(answers, 20);
  check_rests(it.first);
  check_rests(it.second);
  // In turns: each has given about half of its own away, and placed what it was sent itself.
  CHECK(sent(it.first, "second") > 0);
  CHECK(sent(it.second, "first") > 0);
  CHECK(sent(it.first, "0") + sent(it.second, "0") == 48);
}

TEST_CASE("what a remote client asks of a node may go on to its peers") {
  pair_of_peers it;
  client_options to;
  const auto address = it.first.address();
  to.port = static_cast<std::uint16_t>(std::stoi(address.substr(address.find(':') + 1)));
  const auto remote = client::connect(to);
  REQUIRE_MESSAGE(remote, remote.error().message);
  check_all_answered(ask_all({&*remote}, 8, 10), 10);
  CHECK(sent(it.first, "second") > 0);
  check_rests(it.first);
  check_rests(it.second);
}

TEST_CASE("a peer that drains refuses what it is sent, and the sender places it elsewhere") {
  pair_of_peers it;
  const auto drained = it.second.engine().call(verb::drain, to_wire(number_call{0}));
  REQUIRE_MESSAGE(drained, drained.error().message);
  // Sooner than the first hears of it, it sends some there.
  check_all_answered(ask_all({&it.first.engine()}, 16, 10), 10);
  CHECK(sent(it.second, "0") == 0);
  check_rests(it.first);
  check_rests(it.second);
}

TEST_CASE("what waits at a peer when it closes its door is placed elsewhere") {
  pair_of_peers it;
  // Nothing is launched at the second: what it is sent is taken, as much as it has room for, and
  // the rest waits in its router.
  REQUIRE(it.second.at().engine->pause().value());
  std::vector<asked> own;
  for (int i = 0; i < 3; ++i) {
    auto request = greedy(prompt_ids("own" + std::to_string(i), 9), 4);
    request.is_forwarded = true;  // it stays
    own.push_back({*request.ids, it.second.engine().generate(request).value()});
  }
  std::vector<generate_result> answers;
  {
    std::jthread asking([&] { answers = ask_all({&it.first.engine()}, 6, 10); });
    REQUIRE(eventually([&] { return it.second.engine().health()->open_requests > 3; }));
    it.second.doors().stop();
  }
  check_all_answered(answers, 10);
  CHECK(sent(it.first, "second") > 0);
  check_rests(it.first);
  REQUIRE(it.second.at().engine->resume().value());
  for (auto& it_is : own)
    CHECK(read_answer(it_is.chunks, patience).ids == expected_ids(it_is.prompt, 4));
  check_rests(it.second);
}
