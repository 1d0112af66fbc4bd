// Which replica gets a request and when: a table for each rule, and a random world against a model
// that keeps books of its own.
#include <doctest/doctest.h>

#include "runtime/core/request_router.hpp"

using namespace deepinfer;

namespace {

router_config config_of(route_rule rule) {
  router_config out;
  out.rules.rule = rule;
  out.rules.imbalance_tokens = 100;
  return out;
}

/// A router with ready replicas 0 to `count` - 1.
request_router router_of(const router_config& config, std::int32_t count, std::int32_t capacity) {
  request_router out(config);
  for (std::int32_t i = 0; i < count; ++i) {
    out.add_replica(i, capacity);
    out.set_ready(i, true);
  }
  return out;
}

struct asked {
  std::int64_t tokens = 10;
  std::string tenant{};
  std::string session{};
  std::vector<std::uint64_t> prefix{};
  std::int32_t priority = 0;
  std::int32_t sequences = 1;
};

route_request request(const std::string& id, const asked& it = {}) {
  return {id, it.tenant, it.session, it.prefix, it.tokens, 0, it.priority, it.sequences};
}

/// Submits and routes: where it went, or -1.
std::int32_t place(request_router& router, const std::string& id, const asked& it = {}) {
  const auto taken = router.submit(request(id, it), 0);
  REQUIRE_MESSAGE(taken.has_value(), taken.error().message);
  for (const auto& route : router.take_routes())
    if (route.id == id) return route.replica;
  return -1;
}

/// Ids of what is routed now, in order.
std::vector<std::string> routed(request_router& router) {
  std::vector<std::string> out;
  for (auto& it : router.take_routes()) out.push_back(it.id);
  return out;
}

void start_and_end(request_router& router, std::int32_t replica, const std::string& id,
                   std::int64_t outputs = 0) {
  CHECK(router.started(replica, id, 0));
  CHECK(router.ended(replica, id, outputs));
}

/// Lets the only replica, 0, of capacity 1 serve what waits, one after the other.
std::vector<std::string> serve_all(request_router& router, std::int64_t outputs = 0) {
  std::vector<std::string> out;
  for (auto next = routed(router); !next.empty(); next = routed(router)) {
    REQUIRE(next.size() == 1);
    start_and_end(router, 0, next[0], outputs);
    out.push_back(next[0]);
  }
  return out;
}

using names = std::vector<std::string>;

}  // namespace

TEST_CASE("the least loaded replica gets the request, by the tokens that are still to come") {
  auto router = router_of(config_of(route_rule::least_load), 3, 8);
  CHECK(place(router, "a", {.tokens = 100}) == 0);
  CHECK(place(router, "b", {.tokens = 30}) == 1);
  CHECK(place(router, "c", {.tokens = 50}) == 2);
  CHECK(place(router, "d", {.tokens = 15}) == 1);  // 30 is the least
  CHECK(place(router, "e", {.tokens = 20}) == 1);  // 45
  CHECK(place(router, "f", {.tokens = 1}) == 2);   // 50
  CHECK(router.started(0, "a", 90));               // nearly all of it was cached
  CHECK(place(router, "g", {.tokens = 30}) == 0);  // 10
  CHECK(router.replicas().load(0) == 40);
  CHECK(router.started(1, "b", 0));
  CHECK(router.ended(1, "b", 7));
  CHECK(router.replicas().load(1) == 35);
  CHECK(place(router, "h", {.tokens = 10}) == 1);
}

TEST_CASE("in turns means in turns, over those that can take the request") {
  auto router = router_of(config_of(route_rule::round_robin), 3, 2);
  for (const auto wanted : {0, 1, 2, 0})
    CHECK(place(router, std::to_string(router.open())) == wanted);
  router.set_ready(1, false);
  CHECK(place(router, "x") == 2);
  CHECK(place(router, "y") == -1);  // 0 and 2 are full, 1 is not ready
  router.set_ready(1, true);
  CHECK(routed(router) == names{"y"});
}

TEST_CASE("a request goes where its beginning is, as long as that replica is not too loaded") {
  auto router = router_of(config_of(route_rule::prefix), 3, 64);
  CHECK(place(router, "a", {.tokens = 50, .prefix = {1, 2, 3}}) == 0);
  CHECK(place(router, "b", {.tokens = 60, .prefix = {7, 8}}) == 1);
  CHECK(place(router, "c", {.tokens = 50, .prefix = {1, 2, 3, 4}}) == 0);
  CHECK(place(router, "d", {.tokens = 10, .prefix = {1, 2, 9}}) == 0);  // 100 above the least
  CHECK(place(router, "e", {.tokens = 10, .prefix = {1, 2}}) == 2);     // now it is 110
  CHECK(place(router, "f", {.tokens = 5, .prefix = {1, 2, 9}}) == 0);   // 2 has less of it
  CHECK(place(router, "g", {.tokens = 5, .prefix = {7}}) == 1);
  CHECK(place(router, "h", {.tokens = 5, .prefix = {50}}) == 2);  // nobody has it: least
  CHECK(place(router, "i", {.tokens = 5, .prefix = {2}}) == 2);   // its beginning counts
}

TEST_CASE("what a replica knew it has forgotten after it was lost, or was told to") {
  auto router = router_of(config_of(route_rule::prefix), 2, 64);
  CHECK(place(router, "a", {.tokens = 50, .prefix = {1}}) == 0);
  CHECK(place(router, "b", {.tokens = 10, .prefix = {1}}) == 0);
  router.set_ready(0, false);
  router.set_ready(0, true);
  CHECK(place(router, "c", {.tokens = 10, .prefix = {1}}) == 1);
  CHECK(place(router, "d", {.tokens = 70, .prefix = {1}}) == 1);
  router.forget_prefixes();
  CHECK(place(router, "e", {.tokens = 10, .prefix = {1}}) == 0);
}

TEST_CASE("only so many prefixes are remembered, the newest, and beginnings longest") {
  auto config = config_of(route_rule::prefix);
  config.rules.prefixes_most = 3;
  auto router = router_of(config, 2, 64);
  CHECK(place(router, "a", {.tokens = 50, .prefix = {1, 2, 3, 4}}) == 0);
  CHECK(place(router, "b", {.tokens = 1, .prefix = {1, 2, 3, 4}}) == 0);
  CHECK(place(router, "c", {.tokens = 1, .prefix = {5, 6}}) == 1);
  CHECK(place(router, "d", {.tokens = 1, .prefix = {5, 6}}) == 1);
  CHECK(place(router, "e", {.tokens = 1, .prefix = {7, 8}}) == 1);  // 6 leaves
  CHECK(place(router, "f", {.tokens = 90, .prefix = {5}}) == 1);
  CHECK(place(router, "g", {.tokens = 1, .prefix = {6}}) == 0);
}

TEST_CASE("a session stays with its replica where that one has room, and follows its requests") {
  for (const auto rule : {route_rule::prefix, route_rule::least_load, route_rule::round_robin}) {
    auto config = config_of(rule);
    config.rules.sessions_most = 2;
    auto router = router_of(config, 2, 3);
    CHECK(place(router, "a", {.tokens = 1000, .session = "s"}) == 0);
    CHECK(place(router, "b", {.tokens = 10, .session = "s"}) == 0);
    CHECK(place(router, "c", {.tokens = 10, .session = "s"}) == 0);
    CHECK(place(router, "d", {.tokens = 10, .session = "s"}) == 1);  // 0 is full
    CHECK(router.ended(0, "a", 0));
    CHECK(place(router, "e", {.tokens = 10, .session = "s"}) == 1);
    router.set_ready(1, false);
    CHECK(place(router, "f", {.tokens = 10, .session = "s"}) == 0);
  }
}

TEST_CASE("nobody gets more than it has room for, and what waits goes in order") {
  auto router = router_of(config_of(route_rule::least_load), 2, 2);
  CHECK(place(router, "a") == 0);
  CHECK(place(router, "b") == 1);
  CHECK(place(router, "c", {.sequences = 2}) == -1);
  CHECK(place(router, "d") == -1);  // it would fit, but it came later
  CHECK(router.waiting() == 2);
  CHECK(router.ended(1, "b", 5));
  CHECK(routed(router) == names{"c", "d"});
  CHECK(router.replicas().sequences(1) == 2);
  // More sequences than anybody's capacity: alone.
  CHECK(place(router, "e", {.sequences = 5}) == -1);
  CHECK(router.ended(0, "a", 5));
  CHECK(routed(router).empty());
  CHECK(router.ended(0, "d", 5));
  CHECK(routed(router) == names{"e"});
}

TEST_CASE("higher priority goes first, among those of one tenant") {
  auto router = router_of(config_of(route_rule::least_load), 1, 1);
  CHECK(place(router, "run", {.tenant = "a"}) == 0);
  place(router, "a1", {.tenant = "a", .priority = 0});
  place(router, "a2", {.tenant = "a", .priority = 5});
  place(router, "a3", {.tenant = "a", .priority = 5});
  place(router, "b1", {.tenant = "b", .priority = -9});
  start_and_end(router, 0, "run");
  CHECK(serve_all(router) == names{"a2", "b1", "a3", "a1"});
}

TEST_CASE("tenants take turns by the tokens they were served, and many requests gain nothing") {
  auto router = router_of(config_of(route_rule::least_load), 1, 1);
  CHECK(place(router, "run", {.tenant = "many"}) == 0);
  for (int i = 0; i < 1000; ++i) place(router, "m" + std::to_string(i), {.tenant = "many"});
  for (int i = 0; i < 3; ++i)
    place(router, "f" + std::to_string(i), {.tokens = 20, .tenant = "few"});
  start_and_end(router, 0, "run");
  auto order = serve_all(router);
  order.resize(9);
  // 20 tokens of one are as much as two requests of the other.
  CHECK(order == names{"m0", "f0", "m1", "m2", "f1", "m3", "m4", "f2", "m5"});
}

TEST_CASE("who was away has saved nothing up, and outputs count as they were, not as promised") {
  auto router = router_of(config_of(route_rule::least_load), 1, 1);
  place(router, "a0", {.tenant = "a"});
  for (int i = 0; i < 20; ++i) place(router, "b" + std::to_string(i), {.tenant = "b"});
  start_and_end(router, 0, "a0");
  for (int i = 0; i < 10; ++i) {
    const auto next = routed(router);
    REQUIRE(next.size() == 1);
    start_and_end(router, 0, next[0], 90);
  }
  // b was served 1000 tokens; a comes back and is as far as b.
  for (int i = 1; i < 5; ++i)
    CHECK(router.submit(request("a" + std::to_string(i), {.tenant = "a"}), 0).has_value());
  auto order = serve_all(router, 90);
  order.resize(5);
  CHECK(order == names{"b10", "a1", "b11", "a2", "b12"});
  CHECK(router.open() == 0);
}

TEST_CASE("without fair shares the order is that of arrival") {
  auto config = config_of(route_rule::least_load);
  config.fair_shares = false;
  auto router = router_of(config, 1, 1);
  place(router, "run");
  for (const auto* id : {"a1", "a2", "a3", "b1"}) place(router, id, {.tenant = {id[0]}});
  start_and_end(router, 0, "run");
  CHECK(serve_all(router) == names{"a1", "a2", "a3", "b1"});
}

TEST_CASE("a full queue refuses with both numbers, or lets the last of who has most go") {
  auto config = config_of(route_rule::least_load);
  config.max_queued = 3;
  auto router = router_of(config, 1, 1);
  place(router, "run", {.tenant = "a"});
  for (const auto* id : {"a1", "a2", "a3"}) place(router, id, {.tenant = "a"});
  const auto refused = router.submit(request("a4", {.tenant = "a"}), 0);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::queue_full);
  CHECK(refused.error().message == "3 requests wait, at most 3 may");
  CHECK(router.take_refused(0).empty());
  CHECK(place(router, "b1", {.tenant = "b"}) == -1);
  const auto pushed_out = router.take_refused(0);
  REQUIRE(pushed_out.size() == 1);
  CHECK(pushed_out[0].id == "a3");
  CHECK(pushed_out[0].why.code == errc::queue_full);
  CHECK(!router.submit(request("b2", {.tenant = "b"}), 0));  // it would have as many as a
  CHECK(router.waiting() == 3);
}

TEST_CASE("a node elsewhere says how many it runs, and is given no more than that and some ahead") {
  auto config = config_of(route_rule::least_load);
  config.fair_shares = true;
  request_router router(config);
  router.add_replica(0, 256, replica_place::elsewhere);
  router.set_slots(0, 4, ahead_of(4));
  router.set_slots(9, 4, 2);  // of nobody
  router.set_ready(0, true);
  for (int i = 0; i < 20; ++i)
    CHECK(place(router, fmt::format("a{}", i), {.tenant = "a"}) == (i < 6 ? 0 : -1));
  CHECK(place(router, "b", {.tenant = "b"}) == -1);
  // Its share comes before all but one that waits of the other's.
  names next;
  for (const auto* id : {"a0", "a1"}) {
    start_and_end(router, 0, id);
    for (auto& it : routed(router)) next.push_back(std::move(it));
  }
  CHECK(next == names{"a6", "b"});
  // It came back with more, then with nothing that it would say.
  router.set_slots(0, 8, ahead_of(8));
  CHECK(routed(router).size() == 6);
  router.set_slots(0, 0, 0);
  start_and_end(router, 0, "b");
  CHECK(routed(router).size() == 1);
}

TEST_CASE("what a replica was given ahead waits as well, and no more than may wait anywhere do") {
  auto config = config_of(route_rule::least_load);
  config.max_queued = 3;
  request_router router(config);
  router.add_replica(0, 2, replica_place::here, 4);
  router.set_ready(0, true);
  CHECK(place(router, "a") == 0);
  CHECK(place(router, "b") == 0);
  CHECK(router.waiting_anywhere() == 0);  // they find a slot each, started or not
  CHECK(place(router, "c") == 0);         // ahead, and of the three that may wait no other
  CHECK(place(router, "d") == -1);
  CHECK(place(router, "e") == -1);
  CHECK(router.waiting_anywhere() == 3);
  const auto refused = router.submit(request("f"), 0);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::queue_full);
  CHECK(refused.error().message == "3 requests wait, at most 3 may");
  CHECK(router.started(0, "a", 0));
  CHECK(router.started(0, "b", 0));
  CHECK_FALSE(router.submit(request("f"), 0));
  CHECK(router.ended(0, "a", 1));  // c has its slot now, d is next
  CHECK(routed(router) == names{"d"});
  CHECK(router.waiting_anywhere() == 2);
  CHECK(router.submit(request("f"), 0).has_value());
  CHECK_FALSE(router.submit(request("g"), 0));
  // One that was only given ahead leaves, and with it one that waits.
  CHECK(router.ended(0, "d", 0));
  CHECK(routed(router) == names{"e"});
  CHECK(router.waiting_anywhere() == 2);
  // More may wait: more of them ahead.
  config.max_queued = 10;
  router.set_rules(config);
  CHECK(routed(router) == names{"f"});
  CHECK(router.waiting_anywhere() == 2);
}

TEST_CASE("one request that takes more than all slots waits until it starts, and then no more") {
  auto config = config_of(route_rule::least_load);
  config.max_queued = 1;
  request_router router(config);
  router.add_replica(0, 2);
  router.set_ready(0, true);
  CHECK(place(router, "wide", {.sequences = 5}) == 0);
  CHECK(router.waiting_anywhere() == 1);
  CHECK(router.started(0, "wide", 0));
  CHECK(router.waiting_anywhere() == 0);
  CHECK(place(router, "next") == -1);
  CHECK_FALSE(router.submit(request("one too many"), 0));
  CHECK(router.ended(0, "wide", 5));
  CHECK(routed(router) == names{"next"});
}

TEST_CASE("whether a request would be refused is known before its prompt is, and changes nothing") {
  auto config = config_of(route_rule::least_load);
  config.max_queued = 2;
  request_router router(config);
  CHECK(router.check(request("a")).error().code == errc::not_ready);
  router.add_replica(0, 1);
  router.set_ready(0, true);
  place(router, "run", {.tenant = "a"});
  for (const auto* id : {"a1", "a2"}) place(router, id, {.tenant = "a"});
  CHECK(router.check(request("a1")).error().param == "request_id");
  CHECK(router.check(request("a3", {.tenant = "a"})).error().message ==
        "2 requests wait, at most 2 may");
  CHECK(router.check(request("b1", {.tenant = "b"})).has_value());
  CHECK(router.take_refused(0).empty());  // nobody has made room yet
  CHECK(router.waiting() == 2);
  CHECK(router.submit(request("b1", {.tenant = "b"}), 0).has_value());
  CHECK(router.take_refused(0).size() == 1);
}

TEST_CASE("a request waits as long as it may, then it is refused with overloaded") {
  auto config = config_of(route_rule::least_load);
  config.queue_timeout_us = 1'000'000;
  auto router = router_of(config, 1, 1);
  CHECK(router.next_deadline_us() == -1);
  place(router, "run");
  CHECK(router.next_deadline_us() == -1);
  CHECK(router.submit(request("a"), 10).has_value());
  CHECK(router.submit(request("b"), 20).has_value());
  CHECK(router.next_deadline_us() == 1'000'010);
  CHECK(router.take_refused(1'000'009).empty());
  const auto late = router.take_refused(1'000'010);
  REQUIRE(late.size() == 1);
  CHECK(late[0].id == "a");
  CHECK(late[0].why.code == errc::overloaded);
  CHECK(late[0].why.message == "no replica had room for the request within 1000 ms; 1 wait");
  CHECK(router.next_deadline_us() == 1'000'020);
  start_and_end(router, 0, "run");
  CHECK(routed(router) == names{"b"});
  CHECK(router.next_deadline_us() == -1);
  // Given back, it has as long again.
  CHECK(router.give_back(0, "b", 5'000'000));
  CHECK(router.next_deadline_us() == 6'000'000);
}

TEST_CASE("a request that is cancelled while it waits reaches no replica") {
  auto router = router_of(config_of(route_rule::least_load), 1, 1);
  place(router, "run");
  place(router, "a");
  place(router, "b");
  CHECK(router.cancel("a"));
  CHECK_FALSE(router.cancel("a"));
  CHECK_FALSE(router.cancel("run"));  // its replica has to end it
  start_and_end(router, 0, "run");
  CHECK(serve_all(router) == names{"b"});
}

TEST_CASE("a lost replica ends what it had started; what it had not goes elsewhere in order") {
  auto router = router_of(config_of(route_rule::round_robin), 2, 4);
  for (const auto* id : {"a", "b", "c", "d", "e", "f"}) place(router, id);  // 0: a, c, e
  CHECK(router.started(0, "c", 0));
  CHECK(router.started(1, "b", 0));
  const error gone{errc::rank_lost, "replica 0 is lost", {}};
  CHECK(router.lose_replica(0, gone, 0) == names{"c"});
  CHECK(routed(router) == names{"a"});   // replica 1 has room for one
  CHECK_FALSE(router.ended(0, "a", 3));  // it is not there any more
  CHECK(router.ended(1, "b", 3));
  CHECK(routed(router) == names{"e"});
  CHECK(router.lose_replica(1, gone, 0).empty());
  const auto refused = router.take_refused(0);
  REQUIRE(refused.size() == 4);
  CHECK(refused[0].id == "a");
  CHECK(refused[3].id == "f");
  CHECK(refused[0].why.code == errc::rank_lost);
  CHECK(router.open() == 0);
}

TEST_CASE("while no replica is ready requests wait; where none exists they are refused") {
  request_router router(config_of(route_rule::prefix));
  const auto refused = router.submit(request("a"), 0);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::not_ready);
  router.add_replica(3, 1);
  CHECK(place(router, "a") == -1);
  CHECK(router.take_refused(0).empty());
  router.set_ready(3, true);
  CHECK(routed(router) == names{"a"});
  // A retired one ends what it has.
  router.retire_replica(3, {errc::not_ready, "it left", {}});
  CHECK(router.submit(request("b"), 0).error().message == "it left");
  CHECK(router.started(3, "a", 0));
  CHECK(router.ended(3, "a", 1));
  CHECK_FALSE(router.replicas().has(3));
}

TEST_CASE("a request that one replica refuses goes to another, and ends when all have") {
  auto router = router_of(config_of(route_rule::least_load), 2, 4);
  CHECK(place(router, "a") == 0);
  CHECK(router.refuse(0, "a", 0));
  const auto second = router.take_routes();
  REQUIRE(second.size() == 1);
  CHECK(second[0].replica == 1);
  CHECK_FALSE(router.refuse(1, "a", 0));
  CHECK(router.open() == 0);
  // The one that would take it leaves: the first is asked again, and nobody waits behind it.
  CHECK(place(router, "b") == 0);
  CHECK(router.refuse(0, "b", 0));
  router.set_ready(1, false);
  CHECK(router.submit(request("c"), 0).has_value());
  CHECK(routed(router) == names{"b", "c"});
  CHECK_FALSE(router.refuse(0, "b", 0));
}

TEST_CASE("an id is used once at a time, and notes from elsewhere change nothing") {
  auto router = router_of(config_of(route_rule::least_load), 2, 4);
  CHECK(place(router, "a") == 0);
  const auto again = router.submit(request("a"), 0);
  REQUIRE(!again);
  CHECK(again.error().param == "request_id");
  CHECK_FALSE(router.started(1, "a", 0));
  CHECK_FALSE(router.ended(1, "a", 0));
  CHECK_FALSE(router.give_back(1, "a", 0));
  CHECK_FALSE(router.ended(0, "nobody", 0));
  CHECK(router.started(0, "a", 0));
  CHECK_FALSE(router.started(0, "a", 0));
  CHECK_FALSE(router.give_back(0, "a", 0));
  CHECK(router.ended(0, "a", 4));
  CHECK(place(router, "a") == 0);
}

TEST_CASE("other rules hold for requests that come from now on") {
  auto config = config_of(route_rule::round_robin);
  config.max_queued = 1;
  auto router = router_of(config, 2, 1);
  CHECK(place(router, "a") == 0);
  CHECK(place(router, "b") == 1);
  REQUIRE(router.submit(request("c"), 0));
  CHECK_FALSE(router.submit(request("d"), 0));  // one waits, and that is all that may
  config.max_queued = 2;
  config.queue_timeout_us = 50;
  router.set_rules(config);
  REQUIRE(router.submit(request("d"), 100));
  CHECK(router.next_deadline_us() == 150);
  CHECK(router.take_refused(1'000'000).size() == 1);  // c was promised to wait for ever
  start_and_end(router, 0, "a");
  CHECK(routed(router) == std::vector<std::string>{"c"});
}

TEST_CASE("fair shares change when no request is open") {
  auto config = config_of(route_rule::least_load);
  config.fair_shares = false;
  auto router = router_of(config, 1, 1);
  CHECK(place(router, "first") == 0);
  config.fair_shares = true;
  router.set_rules(config);
  asked of_one, of_other;
  of_one.tenant = "one";
  of_other.tenant = "other";
  REQUIRE(router.submit(request("one-1", of_one), 0));
  REQUIRE(router.submit(request("one-2", of_one), 0));
  REQUIRE(router.submit(request("other-1", of_other), 0));
  start_and_end(router, 0, "first");
  for (const auto* id : {"one-1", "one-2", "other-1"}) {  // still by arrival
    CHECK(routed(router) == std::vector<std::string>{id});
    start_and_end(router, 0, id);
  }
  CHECK(place(router, "next", of_one) == 0);
  REQUIRE(router.submit(request("one-3", of_one), 0));
  REQUIRE(router.submit(request("other-2", of_other), 0));
  start_and_end(router, 0, "next", 10);
  CHECK(routed(router) == std::vector<std::string>{"other-2"});  // it has had nothing yet
}
