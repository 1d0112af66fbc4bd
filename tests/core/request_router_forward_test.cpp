// Requests that another node has sent on: where they may go, whom they hold up, when they end.
#include <doctest/doctest.h>

#include "runtime/core/request_router.hpp"

using namespace deepinfer;

namespace {

constexpr std::int32_t own = 0;
constexpr std::int32_t peer = 1;

using names = std::vector<std::string>;

/// A replica of this node and a peer, both ready.
request_router router_of(std::int32_t own_capacity, std::int32_t peer_capacity) {
  router_config config;
  config.rules.rule = route_rule::least_load;
  request_router out(config);
  out.add_replica(own, own_capacity);
  out.add_replica(peer, peer_capacity, replica_place::elsewhere);
  out.set_ready(own, true);
  out.set_ready(peer, true);
  return out;
}

route_request request(const std::string& id, bool is_forwarded) {
  route_request out;
  out.id = id;
  out.prompt_tokens = 10;
  out.is_forwarded = is_forwarded;
  return out;
}

void submit(request_router& router, const std::string& id, bool is_forwarded) {
  const auto taken = router.submit(request(id, is_forwarded), 0);
  REQUIRE_MESSAGE(taken.has_value(), taken.error().message);
}

/// "ID@REPLICA" of what is routed now, in order.
names routed(request_router& router) {
  names out;
  for (const auto& it : router.take_routes())
    out.push_back(it.id + "@" + std::to_string(it.replica));
  return out;
}

}  // namespace

TEST_CASE("where every node is elsewhere and none takes requests, a new one is refused at once") {
  request_router router({});
  router.add_replica(own, 1, replica_place::elsewhere);
  router.add_replica(peer, 1, replica_place::elsewhere);
  CHECK(router.submit(request("a", false), 0).error().code == errc::not_ready);
  router.set_ready(peer, true);
  for (const auto* id : {"b", "c"}) submit(router, id, false);
  CHECK(routed(router) == names{"b@1"});
  router.set_ready(peer, false);  // what waits already waits on
  CHECK(router.take_refused(0).empty());
  CHECK(router.submit(request("d", false), 0).error().code == errc::not_ready);
  router.set_ready(own, true);
  CHECK(routed(router) == names{"c@0"});
  // One of this node comes back in a moment.
  router.set_ready(own, false);
  router.add_replica(2, 1);
  submit(router, "e", false);
  CHECK(router.take_refused(0).empty());
  router.set_ready(2, true);
  CHECK(routed(router) == names{"e@2"});
}

TEST_CASE("a forwarded request goes to replicas of this node alone, others to its peers as well") {
  auto router = router_of(1, 4);
  submit(router, "f1", true);
  submit(router, "f2", true);
  CHECK(routed(router) == names{"f1@0"});  // the peer has room, and is not for f2
  CHECK(router.started(own, "f1", 0));
  CHECK(router.ended(own, "f1", 3));
  CHECK(routed(router) == names{"f2@0"});
  submit(router, "a", false);
  CHECK(routed(router) == names{"a@1"});
}

TEST_CASE("a session and a prefix of the peer don't lead a forwarded request there") {
  auto router = router_of(4, 4);
  router.set_ready(own, false);
  auto first = request("first", false);
  first.session = "s";
  first.prefix = {1, 2};
  REQUIRE(router.submit(first, 0));
  CHECK(routed(router) == names{"first@1"});
  router.set_ready(own, true);
  auto next = first;
  next.id = "next";
  next.is_forwarded = true;
  REQUIRE(router.submit(next, 0));
  CHECK(routed(router) == names{"next@0"});
}

TEST_CASE("where no replica of this node is ready a forwarded request is refused at once") {
  auto router = router_of(4, 4);
  router.set_ready(own, false);
  const auto refused = router.submit(request("f", true), 0);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::not_ready);
  CHECK(router.open() == 0);
  submit(router, "a", false);
  CHECK(routed(router) == names{"a@1"});
}

TEST_CASE("a forwarded request that waits holds up nobody while no replica of this node is ready") {
  auto router = router_of(1, 1);
  submit(router, "a", false);
  submit(router, "f", true);
  CHECK(routed(router) == names{"a@0"});
  submit(router, "b", false);
  CHECK(routed(router) == names{});  // its turn comes before b's, and this node has a place for it
  router.set_ready(own, false);
  CHECK(router.give_back(own, "a", 0));
  CHECK(routed(router) == names{"a@1"});
  CHECK(router.ended(peer, "a", 0));
  CHECK(routed(router) == names{"b@1"});
  CHECK(router.take_refused(0).empty());
  router.set_ready(own, true);
  CHECK(routed(router) == names{"f@0"});
}

TEST_CASE("what is forwarded and waits ends when the last replica of this node is lost for good") {
  auto router = router_of(1, 1);
  submit(router, "a", false);
  CHECK(routed(router) == names{"a@0"});
  submit(router, "f", true);
  submit(router, "b", false);
  CHECK(router.lose_replica(own, {errc::rank_lost, "lost", {}}, 0).empty());  // a had not started
  const auto refused = router.take_refused(0);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].id == "f");
  CHECK(refused[0].why.code == errc::not_ready);
  CHECK(routed(router) == names{"a@1"});
  CHECK(router.open() == 2);
  router.retire_replica(peer, {errc::not_ready, "taken out", {}});
  const auto rest = router.take_refused(0);
  REQUIRE(rest.size() == 1);
  CHECK(rest[0].id == "b");
  CHECK(rest[0].why.message == "taken out");
}

TEST_CASE("a forwarded request that its replica refuses goes to no peer") {
  auto router = router_of(2, 2);
  submit(router, "f", true);
  CHECK(routed(router) == names{"f@0"});
  CHECK_FALSE(router.refuse(own, "f", 0));  // ended: its sender places it elsewhere
  CHECK(router.open() == 0);
}
