#include <doctest/doctest.h>

#include "runtime/base/json.hpp"
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

TEST_CASE(
  "the chrome trace has a slice for every phase and an arrow from each plan to its forward") {
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
  CHECK(arrows_from == 2);
  CHECK(arrows_to == 2);
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
