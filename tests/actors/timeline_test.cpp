// The step trace of a whole node as a timeline.
#include <doctest/doctest.h>

#include <map>

#include "actors/client_state.hpp"
#include "actors/node_state.hpp"
#include "runtime/base/json.hpp"
#include "tests/actors/faulty_node.hpp"
#include "tests/actors/read_answer.hpp"

using namespace deepinfer;

namespace {

struct slice {
  int step = 0;
  double begin = 0.0, end = 0.0;
};

/// Slices by the first word of their name, in the order of the file.
std::map<std::string, std::vector<slice>> slices_of(const json::value& trace) {
  std::map<std::string, std::vector<slice>> out;
  for (const auto& event : trace.at("traceEvents").as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    const std::string name = event.at("name").as_string().c_str();
    const auto begin = event.at("ts").to_number<double>();
    out[name.substr(0, name.find(' '))].push_back({event.at("args").at("step").to_number<int>(),
                                                   begin,
                                                   begin + event.at("dur").to_number<double>()});
  }
  return out;
}

}  // namespace

TEST_CASE("in the timeline of a node every track has its steps in order, one after the other") {
  engine_settings settings;
  settings.engine.depth = 2;
  settings.engine.num_threads = 1;
  const std::string path = std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41";
  auto loaded = node::load(settings, path);
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().message);
  const auto& engine = **loaded;
  const auto client = engine.connect();
  REQUIRE(engine.pause().value());
  std::vector<stream> open;
  for (int i = 0; i < 16; ++i) {
    generate_request request;
    request.text = "Once there was";
    request.sampling.max_tokens = 60;
    request.sampling.ignore_eos = true;
    open.push_back(client.generate(request).value());
  }
  REQUIRE(engine.resume().value());
  for (auto& chunks : open) test::read_answer(chunks, std::chrono::minutes{5});
  REQUIRE(engine.pause().value());

  const auto trace = parse_json(engine.trace(4096).value());
  REQUIRE(trace.has_value());
  const auto slices = slices_of(*trace);
  const auto& forwards = slices.at("forward");
  CHECK(forwards.size() >= 60);
  for (const auto& [name, list] : slices) {
    CAPTURE(name);
    for (std::size_t i = 1; i < list.size(); ++i) {
      CHECK(list[i - 1].end <= list[i].begin);
      CHECK(list[i - 1].step < list[i].step);
    }
  }
}

TEST_CASE("a step that is planned while a forward runs lies under it in the timeline") {
  const auto held_at = std::make_shared<barrier>();
  const auto it = start_hash_node(with_fault({.step = 1, .held_at = held_at}));
  const auto client = it.engine->connect();
  // One token each: behind the first prompt there is nothing to plan until the second comes.
  auto first = client.generate(greedy(prompt_ids("a", 9), 1)).value();
  held_at->wait_for_arrival();
  auto second = client.generate(greedy(prompt_ids("b", 9), 1)).value();
  for (int turn = 0; turn < 200'000; ++turn)
    if (client.stats().value().inflight_steps == 2) break;
  REQUIRE(client.stats()->inflight_steps == 2);
  held_at->open();
  test::read_answer(first, patience);
  test::read_answer(second, patience);
  check_at_rest(it);

  const auto trace = parse_json(it.engine->trace(16).value());
  REQUIRE(trace.has_value());
  const auto slices = slices_of(*trace);
  const auto& forwards = slices.at("forward");
  const auto& plans = slices.at("plan");
  REQUIRE(forwards.size() == 2);
  REQUIRE(plans.size() == 2);
  CHECK(plans[0].end <= forwards[0].begin);
  CHECK(forwards[0].begin < plans[1].begin);
  CHECK(plans[1].end < forwards[0].end);
  CHECK(forwards[0].end <= forwards[1].begin);
}

TEST_CASE("a preemption is an instant in the timeline, with whose it was and why") {
  auto it = start_hash_node(endless());
  const auto client = it.engine->connect();
  auto request = greedy(prompt_ids("a", 9), many_tokens);
  request.request_id = "victim \"of\" an order";
  auto open = client.generate(request).value();
  REQUIRE(open.next(patience).value());
  scheduler_order order;
  order.what = scheduler_order::verb::preempt_all;
  auto& inside = it.engine->inside();
  REQUIRE(ask_and_wait<bool>(inside.system(), inside.replicas.front()->supervisor,
                             std::chrono::seconds{10}, order)
            .value());
  const auto preempted = [&] {
    std::vector<json::object> out;
    const auto trace = parse_json(it.engine->trace(4096).value());
    REQUIRE(trace.has_value());
    for (const auto& event : trace->at("traceEvents").as_array())
      if (event.at("ph") == "i" && event.at("name") == "preempt") out.push_back(event.as_object());
    return out;
  };
  for (int turn = 0; turn < 200'000 && preempted().empty(); ++turn) {
  }
  const auto events = preempted();  // while its request still runs
  REQUIRE(events.size() == 1);
  CHECK(events[0].at("args").at("request") == json::string(request.request_id));
  CHECK(events[0].at("args").at("answer") == 0);
  CHECK(events[0].at("args").at("why") == "order");
  CHECK(events[0].at("pid") == 0);
  CHECK(events[0].at("ts").to_number<double>() > 0);
  CHECK(client.cancel(request.request_id).value());
  check_at_rest(it);
}

TEST_CASE("where the pool is too small every preemption is in the timeline, for want of room") {
  hash_node_options options;
  options.num_kv_blocks = 40;
  const auto it = start_hash_node(options);
  const auto client = it.engine->connect();
  std::vector<stream> open;
  for (int i = 0; i < 4; ++i)
    open.push_back(client.generate(greedy(prompt_ids("p" + std::to_string(i), 9), 80)).value());
  for (auto& chunks : open) CHECK(test::read_answer(chunks, patience).ids.size() == 80);
  const auto trace = parse_json(it.engine->trace(4096).value());
  REQUIRE(trace.has_value());
  std::uint64_t seen = 0;
  for (const auto& event : trace->at("traceEvents").as_array()) {
    if (event.at("ph") != "i" || event.at("name") != "preempt") continue;
    ++seen;
    const std::string why = event.at("args").at("why").as_string().c_str();
    CHECK_MESSAGE((why == "room" || why == "own_room" || why == "stall"), why);
  }
  CHECK(seen > 0);
  CHECK(seen == client.stats()->preemptions);
  check_at_rest(it);
}
