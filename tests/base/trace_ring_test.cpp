#include <doctest/doctest.h>

#include <map>

#include "runtime/base/json.hpp"
#include "runtime/base/span_ring.hpp"
#include "runtime/base/trace_ring.hpp"

using namespace deepinfer;

namespace {

/// A step whose forward runs in [begin, begin + 80) and whose sampling takes 20 more, in ns.
step_trace step_at(std::uint64_t step, std::int64_t begin, bool after_rest = false) {
  step_trace it;
  it.step = step_id{step};
  it.kind = "decode";
  it.rows = 1;
  it.is_after_rest = after_rest;
  it.plan_begin_ns = begin - 30;
  it.plan_end_ns = begin - 10;
  it.settle_begin_ns = begin + 105;
  it.settle_end_ns = begin + 110;
  it.device.begin_ns = {begin - 10, begin, begin + 80, begin + 100};
  it.device.end_ns = {begin - 5, begin + 80, begin + 100, begin + 104};
  return it;
}

}  // namespace

TEST_CASE("the trace ring keeps the newest steps, oldest first") {
  trace_ring ring(3);
  CHECK(ring.newest(10).empty());
  for (std::uint64_t step = 1; step <= 5; ++step) ring.add(step_at(step, 1000));
  const auto kept = ring.newest(10);
  REQUIRE(kept.size() == 3);
  CHECK(kept[0].step.value == 3);
  CHECK(kept[2].step.value == 5);
  CHECK(ring.newest(1).front().step.value == 5);
}

TEST_CASE("the chrome trace has a slice for every phase, and arrows from each plan to its forward "
          "and from each sampling to its settle") {
  const step_trace steps[] = {step_at(1, 1000), step_at(2, 1100)};
  const auto parsed = parse_json(chrome_trace(steps));
  REQUIRE(parsed.has_value());
  const auto& events = parsed->as_object().at("traceEvents").as_array();
  int slices = 0;
  int arrows_from = 0;
  int arrows_to = 0;
  for (const auto& event : events) {
    const auto& it = event.as_object();
    const auto& kind = it.at("ph").as_string();
    if (kind == "X") {
      ++slices;
      CHECK(it.at("dur").to_number<double>() >= 0.0);
      CHECK(it.at("ts").to_number<double>() >= 0.0);
    }
    if (kind == "s") ++arrows_from;
    if (kind == "f") ++arrows_to;
  }
  CHECK(slices == 2 * 6);
  CHECK(arrows_from == 2 * 2);
  CHECK(arrows_to == 2 * 2);
}

TEST_CASE(
  "the chrome trace says of each step what the device waited for, and which rows ran for nobody") {
  auto step = step_at(1, 1000);
  step.overrun_rows = 2;
  step.idle_plan_ns = 1500;
  step.idle_settle_ns = 2500;
  step.idle_vote_ns = 3500;
  step.idle_transfer_ns = 4500;
  step.exposed_host_ns = 3000;
  const auto parsed = parse_json(chrome_trace({&step, 1}));
  REQUIRE(parsed.has_value());
  int slices = 0;
  for (const auto& event : parsed->as_object().at("traceEvents").as_array()) {
    const auto& it = event.as_object();
    if (it.at("ph").as_string() != "X") continue;
    ++slices;
    const auto& args = it.at("args").as_object();
    CHECK(args.at("overrun_rows").to_number<int>() == 2);
    CHECK(args.at("exposed_host_us").to_number<double>() == 3.0);
    const auto& idle = args.at("idle_us").as_object();
    CHECK(idle.at("plan").to_number<double>() == 1.5);
    CHECK(idle.at("settle").to_number<double>() == 2.5);
    CHECK(idle.at("vote").to_number<double>() == 3.5);
    CHECK(idle.at("transfer").to_number<double>() == 4.5);
  }
  CHECK(slices == 6);
}

TEST_CASE("slices of a row of the chrome trace follow each other, and arrows join slices") {
  std::vector<step_trace> steps;
  for (std::uint64_t step = 1; step <= 20; ++step)
    steps.push_back(step_at(step, 1000 + 120 * static_cast<std::int64_t>(step)));
  const auto parsed = parse_json(chrome_trace(steps));
  REQUIRE(parsed.has_value());
  std::map<int, double> end_of_track;
  struct bounds {
    double begin, end;
  };
  std::map<std::pair<int, int>, bounds> slices;  // by track and step
  std::map<std::string, int> names;
  for (const auto& event : parsed->at("traceEvents").as_array()) {
    const auto kind = std::string(event.at("ph").as_string());
    if (kind == "M") ++names[std::string(event.at("name").as_string())];
    if (kind != "X") continue;
    const auto track = event.at("tid").to_number<int>();
    const auto begin = event.at("ts").to_number<double>();
    const auto end = begin + event.at("dur").to_number<double>();
    CHECK(begin >= end_of_track[track] - 1e-6);
    end_of_track[track] = end;
    slices[{track, event.at("args").at("step").to_number<int>()}] = {begin, end};
  }
  CHECK(end_of_track.size() == 5);  // nothing is copied out
  CHECK(names["process_name"] == 1);
  CHECK(names["thread_name"] == 6);
  for (const auto& event : parsed->at("traceEvents").as_array()) {
    const auto kind = std::string(event.at("ph").as_string());
    if (kind != "s" && kind != "f") continue;
    const std::string id = event.at("id").as_string().c_str();
    const auto step = std::stoi(id.substr(id.rfind('.') + 1));
    const auto& slice = slices.at({event.at("tid").to_number<int>(), step});
    const auto at = event.at("ts").to_number<double>();
    CAPTURE(id);
    CHECK(slice.begin <= at);
    CHECK(at <= slice.end);
  }
}

TEST_CASE("the chrome trace counts what each step found, and marks rows that go on") {
  auto step = step_at(7, 1000);
  step.rows = 5;
  step.carried_rows = 3;
  step.inflight_steps = 2;
  step.emitted = 4;
  step.parked_blocks = 9;
  const auto parsed = parse_json(chrome_trace({&step, 1}));
  REQUIRE(parsed.has_value());
  std::map<std::string, int> counters;
  int remaps = 0;
  for (const auto& event : parsed->at("traceEvents").as_array()) {
    const auto kind = std::string(event.at("ph").as_string());
    if (kind == "C")
      counters[std::string(event.at("name").as_string())] =
        event.at("args").at("value").to_number<int>();
    if (kind != "i") continue;
    ++remaps;
    CHECK(event.at("args").at("carried_rows").to_number<int>() == 3);
    CHECK(event.at("args").at("fresh_rows").to_number<int>() == 2);
  }
  CHECK(remaps == 1);
  CHECK(counters ==
        std::map<std::string, int>{
          {"steps in flight", 2}, {"rows", 5}, {"tokens emitted", 4}, {"blocks parked", 9}});
}

TEST_CASE("the span ring keeps the newest requests, oldest first") {
  span_ring ring(3);
  CHECK(ring.newest(10).empty());
  for (int i = 1; i <= 5; ++i) {
    request_span it;
    it.id = std::to_string(i);
    ring.add(it);
    CHECK(ring.newest(1).front().id == it.id);
  }
  const auto kept = ring.newest(10);
  REQUIRE(kept.size() == 3);
  CHECK(kept[0].id == "3");
  CHECK(kept[2].id == "5");
  CHECK(ring.newest(2).front().id == "4");
  span_ring young(3);
  for (const auto* id : {"a", "b"}) {
    request_span it;
    it.id = id;
    young.add(it);
  }
  REQUIRE(young.newest(9).size() == 2);
  CHECK(young.newest(9)[0].id == "a");
  CHECK(young.newest(1)[0].id == "b");
}

TEST_CASE("the spans of a trace are those that had not ended when its first step was planned") {
  span_ring ring(8);
  for (const auto end : {100, 200, 300}) {
    request_span it;
    it.end_ns = end;
    ring.add(it);
  }
  const std::vector<step_trace> steps{step_at(2, 430), step_at(1, 230)};
  CHECK(begin_of(steps) == 200);
  CHECK(begin_of({}) == 0);
  const auto kept = ring.since(begin_of(steps));
  REQUIRE(kept.size() == 2);
  CHECK(kept[0].end_ns == 200);
}

TEST_CASE("a request is an async event whose parts follow each other, however far it came") {
  request_span whole;
  whole.id = "a\"b\n";  // must not break the file
  whole.rank = {2};
  whole.queued_ns = 1000;
  whole.prefill_ns = 2000;
  whole.decode_ns = 5000;
  whole.end_ns = 9000;
  whole.finish = "stop";
  request_span refused;
  refused.id = "r2";
  refused.queued_ns = 1500;
  refused.end_ns = 1700;
  const request_span spans[] = {whole, refused};
  const auto parsed = parse_json(chrome_trace({}, spans));
  REQUIRE(parsed.has_value());
  struct bounds {
    double begin = -1, end = -1;
  };
  std::map<std::string, std::map<std::string, bounds>> requests;
  for (const auto& event : parsed->at("traceEvents").as_array()) {
    const auto kind = std::string(event.at("ph").as_string());
    if (kind != "b" && kind != "e") continue;
    auto& part =
      requests[std::string(event.at("id").as_string())][std::string(event.at("name").as_string())];
    (kind == "b" ? part.begin : part.end) = event.at("ts").to_number<double>();
  }
  REQUIRE(requests.size() == 2);
  auto& parts = requests.at(whole.id);
  CHECK(parts.size() == 4);
  CHECK(parts[whole.id].begin == 0.0);
  CHECK(parts[whole.id].end == 8.0);
  CHECK(parts["queued"].end == parts["prefill"].begin);
  CHECK(parts["prefill"].end == parts["decode"].begin);
  CHECK(parts["decode"].begin == 4.0);
  CHECK(parts["decode"].end == 8.0);
  auto& queued = requests.at("r2");
  CHECK(queued.size() == 2);
  CHECK(queued["queued"].begin == 0.5);
  CHECK(queued["queued"].end == doctest::Approx(0.7));
}

TEST_CASE("preemptions are instants on the row of plans, those since the first step, the newest") {
  span_ring ring(2);
  for (const auto at_ns : {100, 3000, 4000}) ring.note({"a\"b\n", 1, {2}, at_ns, "room"});
  CHECK(ring.preempted_since(0).size() == 2);  // no more than the ring holds
  CHECK(ring.preempted_since(3500).size() == 1);
  const auto marks = ring.preempted_since(0);
  const auto parsed = parse_json(chrome_trace({}, {}, marks));
  REQUIRE(parsed.has_value());
  std::vector<double> times;
  for (const auto& event : parsed->at("traceEvents").as_array()) {
    if (event.at("ph") != "i") continue;
    times.push_back(event.at("ts").to_number<double>());
    CHECK(event.at("name") == "preempt");
    CHECK(event.at("pid") == 2);
    CHECK(event.at("tid") == 1);
    CHECK(event.at("args").at("request") == "a\"b\n");
    CHECK(event.at("args").at("answer") == 1);
    CHECK(event.at("args").at("why") == "room");
  }
  CHECK(times == std::vector<double>{0.0, 1.0});
}
