#include "actors/cluster.hpp"

#include <doctest/doctest.h>

#include <map>
#include <mutex>

#include "actors/client_state.hpp"
#include "messages/wire.hpp"
#include "runtime/base/metrics.hpp"
#include "tests/actors/hash_node.hpp"
#include "tests/remote/child_process.hpp"
#include "tests/support/captured_log.hpp"

using namespace deepinfer;
using namespace deepinfer::test;
using namespace std::chrono_literals;

namespace {

/// A node of a cluster in this process, without an engine of its own: what it is told of others.
class meeting_point {
public:
  explicit meeting_point(std::vector<std::string> peers = {}, std::uint16_t port = 0,
                         std::vector<std::string> join = {},
                         const std::string& own_name = "middle") {
    settings_.port = port;
    settings_.peers = std::move(peers);
    settings_.join = std::move(join);
    settings_.heartbeat_interval = 200ms;
    settings_.connection_timeout = 20s;
    host_ = actor_host::open(settings_).value();
    wire_door_options door;
    door.port = port;
    door.node_name = own_name;
    door_ = wire_door::open(host_, door).value();
    cluster_options options;
    options.health_interval = 100ms;
    options.forget_after = 1s;
    options.join_interval = 100ms;
    options.connect_timeout = 1s;
    options.counts = &counts;
    cluster_hooks hooks;
    hooks.on_peer = [this](const std::string& name, const node_door_actor& front) {
      const std::lock_guard lock(mutex_);
      CHECK(!up_.contains(name));
      up_[name] = front;
    };
    hooks.on_peer_lost = [this](const std::string& name) {
      const std::lock_guard lock(mutex_);
      CHECK(up_.erase(name) == 1);
    };
    cluster_ = cluster::open(host_, settings_, *door_, options, hooks).value();
  }

  ~meeting_point() {
    cluster_->stop();
    door_->stop();
    up_.clear();
  }

  std::uint16_t port() const { return door_->port(); }
  std::string address() const { return "127.0.0.1:" + std::to_string(door_->port()); }

  bool has(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return up_.contains(name);
  }

  /// A client of that node, over this one's link to it.
  client reach(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return client(std::make_shared<client::state>(host_->system(), up_.at(name)));
  }

  /// Of the list that people see; empty where the node is not in it.
  node_entry entry(const std::string& name) {
    const auto list = cluster_->nodes();
    REQUIRE_MESSAGE(list, list.error().message);
    for (const auto& it : list->nodes)
      if (it.name == name) return it;
    return {};
  }

  metrics counts;

private:
  actor_settings settings_;
  std::shared_ptr<actor_host> host_;
  std::unique_ptr<wire_door> door_;
  std::unique_ptr<cluster> cluster_;
  std::mutex mutex_;
  std::map<std::string, node_door_actor> up_;
};

/// The metric says so, as soon as everything has been heard.
bool counts(const meeting_point& middle, double up, double down) {
  return eventually([&] {
    return middle.counts.value(metric::cluster_nodes, {"up"}) == up &&
           middle.counts.value(metric::cluster_nodes, {"down"}) == down;
  });
}

void check_serves(const client& engine) {
  const auto prompt = prompt_ids("a", 9);
  const auto answer = engine.generate_sync(greedy(prompt, 20), patience);
  REQUIRE_MESSAGE(answer, answer.error().message);
  CHECK(answer->ids == expected_ids(prompt, 20));
}

}  // namespace

TEST_CASE("nodes that join are sent requests, leave when they die, and come back") {
  meeting_point middle;
  CHECK(counts(middle, 1, 0));  // itself
  auto left =
    std::make_unique<node_process>(child_settings{{"NAME", "left"}, {"JOIN", middle.address()}});
  node_process right(child_settings{{"NAME", "right"}, {"JOIN", middle.address()}});
  REQUIRE(eventually([&] { return middle.has("left") && middle.has("right"); }));
  check_serves(middle.reach("left"));
  check_serves(middle.reach("right"));
  CHECK(counts(middle, 3, 0));
  CHECK(middle.entry("middle").origin == "self");
  CHECK(middle.entry("middle").state == "loading");
  CHECK(middle.entry("left").state == "up");
  CHECK(middle.entry("left").origin == "joined");
  CHECK(middle.entry("left").port == left->port);
  left->process.kill();
  CHECK(eventually([&] { return !middle.has("left"); }));
  CHECK(counts(middle, 2, 1));
  check_serves(middle.reach("right"));
  left =
    std::make_unique<node_process>(child_settings{{"NAME", "left"}, {"JOIN", middle.address()}});
  REQUIRE(eventually([&] { return middle.has("left"); }));
  CHECK(counts(middle, 3, 0));  // and not the old one as well, whose port was another
  check_serves(middle.reach("left"));
  left->process.kill();
  // Who has left and says nothing more is forgotten.
  CHECK(eventually([&] { return middle.entry("left").name.empty(); }));
  CHECK(counts(middle, 2, 0));
}

TEST_CASE("a node joins again when the one that it told was started anew") {
  auto middle = std::make_unique<meeting_point>();
  const auto port = middle->port();
  node_process node(child_settings{{"NAME", "left"}, {"JOIN", middle->address()}});
  REQUIRE(eventually([&] { return middle->has("left"); }));
  middle.reset();
  middle = std::make_unique<meeting_point>(std::vector<std::string>{}, port);
  REQUIRE(eventually([&] { return middle->has("left"); }));
  check_serves(middle->reach("left"));
}

TEST_CASE("a node says once that it has joined, and nothing while it is about to") {
  const captured_log log;
  meeting_point middle;
  const meeting_point guest({}, 0, {middle.address()}, "guest");
  REQUIRE(eventually([&] { return !log.lines("joined the node middle at ").empty(); }));
  // It has said join again by the time that another has.
  const meeting_point later({}, 0, {middle.address()}, "later");
  REQUIRE(eventually([&] { return log.lines("joined the node middle at ").size() == 2; }));
  CHECK(log.lines("is not joined").empty());
  CHECK(log.lines("asks for requests").size() == 2);
}

TEST_CASE("a node says once why it has not joined, and that it has when it could") {
  const auto port = meeting_point().port();
  const captured_log log;
  const meeting_point guest({}, 0, {"127.0.0.1:" + std::to_string(port)}, "guest");
  REQUIRE(eventually([&] { return !log.lines("is not joined").empty(); }));
  CHECK(log.lines("is not joined")[0].find("nobody answers") != std::string::npos);
  const meeting_point middle({}, port);
  REQUIRE(eventually([&] { return !log.lines("joined the node middle at ").empty(); }));
  CHECK(log.lines("is not joined").size() == 1);
}

TEST_CASE("a peer counts while its model is there, under the name that it says") {
  auto node = std::make_unique<node_process>(child_settings{{"NAME", "north"}, {"LOADING", "1"}});
  const auto port = node->port;
  const auto address = "127.0.0.1:" + std::to_string(port);
  meeting_point middle({address});
  CHECK(eventually([&] {
    return middle.entry(address).reason.find("loading") != std::string::npos ||
           middle.entry(address).state == "down";
  }));
  CHECK_FALSE(middle.has("north"));
  CHECK(counts(middle, 1, 1));
  CHECK(node->process.ask("attach") == "attached");
  REQUIRE(eventually([&] { return middle.has("north"); }));
  CHECK(middle.entry("north").origin == "peer");
  CHECK(counts(middle, 2, 0));
  check_serves(middle.reach("north"));
  node->process.kill();
  CHECK(eventually([&] { return !middle.has("north"); }));
  CHECK(middle.entry("north").state == "down");
  CHECK(counts(middle, 1, 1));
  node = std::make_unique<node_process>(
    child_settings{{"NAME", "north"}, {"PORT", std::to_string(port)}});
  CHECK(eventually([&] { return middle.has("north"); }));
  CHECK(counts(middle, 2, 0));
}

TEST_CASE("a node that is a peer and joins as well counts once") {
  node_process first(child_settings{{"NAME", "both"}});
  meeting_point middle({"127.0.0.1:" + std::to_string(first.port)});
  REQUIRE(eventually([&] { return middle.has("both"); }));
  // `has` would find a second announcement of the name: the hook checks it.
  client_options to;
  to.port = middle.port();
  const auto link = client::connect(to);
  REQUIRE_MESSAGE(link, link.error().message);
  const auto joined = link->call(verb::join, to_wire(join_call{"both", "127.0.0.1", first.port}));
  REQUIRE_MESSAGE(joined, joined.error().message);
  const auto listed = from_wire<node_list>(link->call(verb::nodes, {}).value());
  REQUIRE(listed);
  CHECK(listed->nodes.size() == 3);
  CHECK(counts(middle, 2, 0));
  check_serves(middle.reach("both"));
}

TEST_CASE("a join that makes no sense is refused") {
  meeting_point middle;
  client_options to;
  to.port = middle.port();
  const auto link = client::connect(to);
  REQUIRE_MESSAGE(link, link.error().message);
  for (const auto& bad : {join_call{"", "a", 1}, join_call{"a", "", 1}, join_call{"a", "b", 0},
                          join_call{"a", "b", 65'536}, join_call{"middle", "b", 1},
                          join_call{std::string(257, 'a'), "b", 1}}) {
    const auto refused = link->call(verb::join, to_wire(bad));
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::invalid_argument);
  }
  CHECK(link->call(verb::join, "\xff").error().code == errc::invalid_argument);
}

TEST_CASE("an address that is none ends the start with the setting at fault") {
  actor_settings settings;
  settings.join = {"a:b"};
  const auto host = actor_host::open(settings).value();
  wire_door_options options;
  options.port = 0;
  const auto door = wire_door::open(host, options).value();
  const auto refused = cluster::open(host, settings, *door, {}, {});
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::bad_config);
  CHECK(refused.error().message.find("actor.join: found 'a:b'") != std::string::npos);
}
