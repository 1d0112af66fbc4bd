#include <doctest/doctest.h>

#include <set>

#include "actors/dashboard_snapshot.hpp"
#include "runtime/base/json.hpp"

using namespace deepinfer;

namespace {

step_trace step_of(std::uint64_t step, std::int32_t rank = 0) {
  const auto at = static_cast<std::int64_t>(step) * 1'000'000;
  step_trace it;
  it.step = {step};
  it.rank = {rank};
  it.kind = "decode";
  it.rows = 3;
  it.plan_begin_ns = at;
  it.plan_end_ns = at + 20'000;
  it.device.begin_ns = {at + 30'000, at + 40'000, at + 800'000, 0, at + 900'000};
  it.device.end_ns = {at + 35'000, at + 800'000, at + 850'000, 0, at + 910'000};
  it.settle_begin_ns = at + 950'000;
  it.settle_end_ns = at + 960'500;
  return it;
}

json::value shown(const dashboard_view& view, const metrics& counts = metrics()) {
  const auto text = dashboard_snapshot(view, counts);
  CHECK(text.find('\n') == std::string::npos);  // it is one event
  auto parsed = parse_json(text);
  REQUIRE(parsed.has_value());
  return std::move(*parsed);
}

std::set<std::pair<int, int>> steps_in(const json::value& snapshot) {
  std::set<std::pair<int, int>> out;
  for (const auto& it : snapshot.at("steps").as_array())
    out.emplace(it.at("rank").to_number<int>(), it.at("step").to_number<int>());
  return out;
}

}  // namespace

TEST_CASE("a snapshot of a node before its model has every key, and null for what is not known") {
  dashboard_view view;
  view.health.state = health_state::loading;
  view.health.progress = 0.25;
  const auto it = shown(view);
  CHECK(it.at("health").at("state").as_string() == "loading");
  CHECK(it.at("health").at("progress").to_number<double>() == 0.25);
  CHECK(it.at("newest_step").to_number<int>() == -1);
  CHECK(it.at("uptime_s").is_null());
  CHECK(it.at("ttft_s").at("p50").is_null());
  CHECK(it.at("overlap").is_null());
  CHECK(it.at("steps").as_array().empty());
  CHECK(it.at("requests").as_array().empty());
  CHECK(it.at("group").at("size").to_number<int>() == 0);
  CHECK(it.at("eplb").at("load").as_array().empty());
}

TEST_CASE("a snapshot tells of each replica, and of one that is down that it is") {
  node_stats first;
  first.running = 3;
  first.queued = 1;
  first.tokens_out = 70;
  first.kv_blocks_total = 10;
  first.kv_blocks_free = 4;
  node_stats resting;
  resting.kv_blocks_total = 10;
  dashboard_view view;
  view.replicas = {first, resting, std::nullopt, node_stats{}};
  const auto list = shown(view).at("replicas").as_array();
  REQUIRE(list.size() == 4);
  CHECK(list[0].at("replica") == 0);
  CHECK(list[0].at("state") == "up");
  CHECK(list[0].at("running") == 3);
  CHECK(list[0].at("waiting") == 1);
  CHECK(list[0].at("generation_tokens") == 70);
  CHECK(list[0].at("kv").at("free") == 4);
  CHECK(list[1].at("state") == "up");
  CHECK(list[2].at("state") == "down");
  CHECK(list[3].at("state") == "down");  // a rank that died has no blocks
}

TEST_CASE("a snapshot names the nodes around its own, and why one of them takes no requests") {
  dashboard_view view;
  view.nodes.nodes = {{"n1", "here", 4242, "up", "self", ""}};
  CHECK(shown(view).at("nodes").as_array().empty());  // alone
  view.nodes.nodes.push_back({"n2", "::1", 4242, "up", "peer", ""});
  view.nodes.nodes.push_back({"n3", "there", 4243, "down", "joined", "nobody answers"});
  view.nodes.nodes.push_back({"n4", "far", 4244, "up", "told", ""});
  const auto list = shown(view).at("nodes").as_array();
  REQUIRE(list.size() == 4);
  CHECK(list[1].at("name") == "n2");
  CHECK(list[1].at("address") == "[::1]:4242");
  CHECK(list[1].at("state") == "ready");
  CHECK(list[1].at("takes_requests") == true);
  CHECK(list[1].at("snapshot").is_null());
  CHECK(list[2].at("state") == "down");
  CHECK(list[2].at("reason") == "nobody answers");
  CHECK(list[2].at("takes_requests") == false);
  CHECK(list[3].at("takes_requests") == false);
}

TEST_CASE("a snapshot names a node once, by the way that requests can go") {
  dashboard_view view;
  view.nodes.nodes = {{"n1", "here", 4242, "up", "self", ""},
                      {"there:4242", "there", 4242, "down", "peer", "nobody answers"},
                      {"n2", "there", 4242, "down", "joined", "nobody answers"},
                      {"far:4242", "far", 4242, "down", "peer", "nobody answers"},
                      {"n3", "far", 4242, "up", "joined", ""},
                      {"n3", "elsewhere", 4242, "up", "told", ""},
                      {"n1", "localhost", 4242, "up", "peer", "this node itself"}};
  const auto list = shown(view).at("nodes").as_array();
  REQUIRE(list.size() == 3);
  CHECK(list[0].at("origin") == "self");
  CHECK(list[1].at("state") == "down");
  CHECK(list[2].at("name") == "n3");
  CHECK(list[2].at("takes_requests") == true);
  view.nodes.nodes = {{"n1", "here", 4242, "up", "self", ""}, view.nodes.nodes.back()};
  CHECK(shown(view).at("nodes").as_array().empty());
}

TEST_CASE("requests that no replica has yet wait, too") {
  dashboard_view view;
  view.stats.queued = 2;
  for (const auto* state : {"routing", "queued", "routing", "decode"})
    view.requests.requests.emplace_back().state = state;
  CHECK(shown(view).at("waiting") == 4);
}

TEST_CASE("a snapshot tells of each step when its host and device work ran, in microseconds") {
  dashboard_view view;
  view.steps = {step_of(1)};
  auto gated = step_of(2);
  gated.device.begin_ns[static_cast<std::size_t>(step_phase::sample_gated)] = 2'860'000;
  gated.device.end_ns[static_cast<std::size_t>(step_phase::sample_gated)] = 2'880'000;
  view.steps.push_back(gated);
  const auto it = shown(view);
  const auto& first = it.at("steps").as_array().at(0);
  CHECK(first.at("plan") == json::value({1000.0, 1020.0}));
  CHECK(first.at("forward") == json::value({1040.0, 1800.0}));
  CHECK(first.at("sample") == json::value({1800.0, 1850.0}));
  CHECK(first.at("settle") == json::value({1950.0, 1960.5}));
  CHECK(first.at("kind").as_string() == "decode");
  CHECK(it.at("steps").as_array().at(1).at("sample") == json::value({2800.0, 2880.0}));
  auto failed = step_of(3);
  failed.device = {};
  view.steps = {failed};
  CHECK(shown(view).at("steps").as_array().at(0).at("forward").is_null());
}

TEST_CASE("a snapshot brings the steps that its reader lacks, at most 64 of a rank") {
  dashboard_view view;
  for (std::uint64_t step = 1; step <= 100; ++step) view.steps.push_back(step_of(step));
  auto it = shown(view);
  CHECK(it.at("newest_step").to_number<int>() == 100);
  CHECK(steps_in(it).size() == 64);
  CHECK(steps_in(it).begin()->second == 37);
  view.known_step = 98;
  CHECK(steps_in(shown(view)) == std::set<std::pair<int, int>>{{0, 99}, {0, 100}});
  view.known_step = 100;
  CHECK(steps_in(shown(view)).empty());
  view.known_step = 5000;  // of the rank's life before
  CHECK(steps_in(shown(view)).size() == 64);
}

TEST_CASE("no step of a slow rank is lost to the pace of a fast one") {
  dashboard_view view;
  for (std::uint64_t step = 60; step <= 100; ++step) view.steps.push_back(step_of(step, 0));
  view.steps.push_back(step_of(7, 1));
  auto it = shown(view);
  CHECK(it.at("newest_step").to_number<int>() == 7);
  view.known_step = it.at("newest_step").to_number<int>();
  view.steps.push_back(step_of(8, 1));
  it = shown(view);
  CHECK(steps_in(it).contains({1, 8}));
  CHECK(steps_in(it).contains({0, 100}));
}

TEST_CASE("the blocks of a snapshot add up, whatever its sources counted at different moments") {
  metrics counts;
  counts.set(metric::kv_reserved_blocks, 6);
  dashboard_view view;
  view.stats.kv_blocks_total = 100;
  view.stats.kv_blocks_free = 50;
  view.stats.kv_blocks_cached = 10;
  view.stats.deferred_blocks = 4;
  auto kv = shown(view, counts).at("kv");
  CHECK(kv.at("used").to_number<int>() == 30);
  CHECK(kv.at("reserved").to_number<int>() == 6);
  view.stats.kv_blocks_free = 95;
  kv = shown(view, counts).at("kv");
  int sum = 0;
  for (const auto* part : {"used", "cached", "reserved", "deferred", "free"}) {
    CHECK(kv.at(part).to_number<int>() >= 0);
    sum += kv.at(part).to_number<int>();
  }
  CHECK(sum == 100);
}

TEST_CASE("a snapshot has totals, quantiles, requests and votes from where they are counted") {
  metrics counts;
  for (int i = 0; i < 10; ++i) counts.observe(metric::time_to_first_token_seconds, 0.015);
  counts.add(metric::prefill_votes_total, 2, {"quorum", "go"});
  counts.add(metric::prefill_votes_total, 3, {"points", "go"});
  counts.add(metric::prefix_cache_queries_total, 40);
  counts.add(metric::prefix_cache_hits_total, 30);
  counts.set(metric::overlap_ratio, 0.9, {"0"});
  counts.set(metric::overlap_ratio, 0.7, {"1"});
  dashboard_view view;
  view.model.names = {"tiny \"v4\"\n"};
  view.model.loaded_at = 1000;
  view.unix_seconds = 1060;
  view.stats.tokens_out = 123;
  view.stats.device_busy_ns = 2'500'000;
  view.steps = {step_of(1, 0), step_of(1, 1)};
  view.expert_load = {{1, 2, 3}, {4, 5, 6}};
  for (int i = 0; i < 300; ++i) {
    request_info it;
    it.id = "<b>r" + std::to_string(i);
    it.state = "decode";
    it.age_us = 1'500'000;
    view.requests.requests.push_back(it);
  }
  const auto it = shown(view, counts);
  CHECK(it.at("uptime_s").to_number<int>() == 60);
  CHECK(it.at("model").at("names").as_array().at(0).as_string() == "tiny \"v4\"\n");
  CHECK(it.at("totals").at("generation_tokens").to_number<int>() == 123);
  CHECK(it.at("totals").at("busy_us").to_number<double>() == 2500.0);
  CHECK(it.at("totals").at("hit_tokens").to_number<int>() == 30);
  CHECK(it.at("ttft_s").at("p50").to_number<double>() == doctest::Approx(0.015));
  CHECK(it.at("itl_s").at("p50").is_null());
  CHECK(it.at("overlap").to_number<double>() == 0.7);
  CHECK(it.at("group").at("go").to_number<int>() == 5);
  CHECK(it.at("requests").as_array().size() == 200);
  CHECK(it.at("requests_total").to_number<int>() == 300);
  CHECK(it.at("requests").as_array().at(7).at("id").as_string() == "<b>r7");
  CHECK(it.at("requests").as_array().at(7).at("age_s").to_number<double>() == 1.5);
  CHECK(it.at("eplb").at("load") == json::value({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}));
}
