#include "actors/gateway_snapshot.hpp"

#include <doctest/doctest.h>

#include "actors/dashboard_snapshot.hpp"
#include "runtime/base/json.hpp"

using namespace deepinfer;

namespace {

request_info request_of(const std::string& id, const std::string& state, std::int64_t age_us) {
  request_info it;
  it.id = id;
  it.state = state;
  it.age_us = age_us;
  return it;
}

/// A node that has run up to step `newest`, with one request.
gateway_part part_of(const std::string& name, std::uint64_t newest, double ttft_s) {
  metrics counts;
  counts.observe(metric::time_to_first_token_seconds, ttft_s);
  counts.add(metric::prompt_tokens_total, 10);
  dashboard_view view;
  view.health.state = health_state::ready;
  view.health.node = name;
  view.model.names = {"tiny"};
  view.model.num_kv_blocks = 100;
  view.model.loaded_at = 1'000;
  view.unix_seconds = 1'060;
  view.stats.running = 1;
  view.stats.queued = 2;
  view.stats.steps = newest;
  view.stats.kv_blocks_total = 100;
  view.stats.kv_blocks_free = 60;
  step_trace step;
  step.step = {newest};
  view.steps = {step};
  view.requests.requests = {request_of(name + "-request", "decode", 2'000'000)};
  gateway_part out;
  out.address = name + ":4242";
  out.takes_requests = true;
  out.health = view.health;
  out.snapshot = dashboard_snapshot(view, counts);
  return out;
}

gateway_part silent_part() {
  gateway_part out;
  out.address = "c:4242";
  out.reason = "no connection to the node at c:4242";
  out.failure = "no answer within the deadline";
  return out;
}

json::value shown(const gateway_view& view) {
  const auto text = gateway_snapshot(view);
  CHECK(text.find('\n') == std::string::npos);  // it is one event
  auto parsed = parse_json(text);
  REQUIRE(parsed.has_value());
  return std::move(*parsed);
}

}  // namespace

TEST_CASE("a gateway's snapshot has the sums of its nodes under the keys of a node's snapshot") {
  gateway_view view;
  view.health.state = health_state::ready;
  view.uptime_s = 5;
  view.nodes = {part_of("a", 100, 0.004), part_of("b", 7, 0.4), silent_part()};
  const auto it = shown(view);
  const auto of_node = parse_json(view.nodes[0].snapshot).value();
  for (const auto& member : of_node.as_object()) {
    const std::string key(member.key());
    CHECK_MESSAGE(it.as_object().contains(key), key);
  }
  CHECK(of_node.at("uptime_s") == 60);
  CHECK(it.at("uptime_s") == 5);  // its own
  CHECK(it.at("running") == 2);
  CHECK(it.at("waiting") == 4);
  CHECK(it.at("totals").at("steps") == 107);
  CHECK(it.at("totals").at("prompt_tokens").to_number<double>() == 20.0);
  CHECK(it.at("kv").at("total") == 200);
  CHECK(it.at("kv").at("free") == 120);
  CHECK(it.at("model").at("num_kv_blocks") == 200);
  CHECK(it.at("model").at("names").as_array().at(0) == "tiny");
  const auto slowest = parse_json(view.nodes[1].snapshot).value().at("ttft_s");
  CHECK(it.at("ttft_s") == slowest);
  CHECK(it.at("itl_s").at("p50").is_null());
  CHECK(it.at("newest_step") == 7);  // of the slower: nothing of it is missed
  CHECK(it.at("steps").as_array().empty());
}

TEST_CASE("a gateway's snapshot has a node's whole part, or why there is none") {
  gateway_view view;
  auto loading = silent_part();
  loading.health = node_health{};
  loading.health->state = health_state::loading;
  loading.health->node = "d";
  loading.health->progress = 0.5;
  auto odd = part_of("e", 1, 0.1);
  odd.snapshot = "[]";
  view.nodes = {part_of("a", 100, 0.004), silent_part(), loading, odd};
  const auto nodes = shown(view).at("nodes").as_array();
  REQUIRE(nodes.size() == 4);
  CHECK(nodes[0].at("name") == "a");
  CHECK(nodes[0].at("address") == "a:4242");
  CHECK(nodes[0].at("state") == "ready");
  CHECK(nodes[0].at("takes_requests") == true);
  CHECK(nodes[0].at("reason") == "");
  CHECK(nodes[0].at("snapshot") == parse_json(view.nodes[0].snapshot).value());
  CHECK(nodes[1].at("state") == "down");
  CHECK(nodes[1].at("reason") == "no connection to the node at c:4242");
  CHECK(nodes[1].at("snapshot").is_null());
  CHECK(nodes[2].at("name") == "d");
  CHECK(nodes[2].at("state") == "loading");
  CHECK(nodes[2].at("progress").to_number<double>() == 0.5);
  CHECK(nodes[3].at("reason") == "its snapshot is no JSON object");
}

TEST_CASE("requests of a gateway are its own, with what their nodes know of them") {
  gateway_view view;
  view.nodes = {part_of("a", 100, 0.004), part_of("b", 7, 0.4)};
  request_list own;
  own.requests = {request_of("b-request", "queued", 5'000'000), request_of("new", "routing", 10)};
  view.requests = own;
  auto it = shown(view);
  const auto& list = it.at("requests").as_array();
  REQUIRE(list.size() == 2);
  CHECK(list[0].at("id") == "b-request");
  CHECK(list[0].at("state") == "decode");
  CHECK(list[0].at("node") == "b");
  CHECK(list[0].at("age_s") == 5.0);  // since it came to the gateway
  CHECK(list[1].at("node") == "");
  CHECK(it.at("requests_total") == 2);
  CHECK(it.at("waiting") == 5);  // one in no node yet
  view.requests.reset();         // it did not say in time
  it = shown(view);
  CHECK(it.at("requests_total") == 2);
  CHECK(it.at("requests").as_array().at(0).at("id") == "a-request");
}

TEST_CASE("a snapshot of a gateway without a node that answers has every key") {
  gateway_view view;
  view.health.state = health_state::failed;
  view.nodes = {silent_part()};
  const auto it = shown(view);
  CHECK(it.at("running") == 0);
  CHECK(it.at("newest_step") == -1);
  CHECK(it.at("health").at("state") == "failed");
  CHECK(it.at("model").at("names").as_array().empty());
}
