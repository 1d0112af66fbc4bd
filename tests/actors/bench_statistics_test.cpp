// What the bench commands compute from measurements: medians, bounds, steps out of a trace.
#include <doctest/doctest.h>

#include <limits>

#include "actors/node/bench/bench_machine.hpp"
#include "actors/node/bench/bench_statistics.hpp"
#include "actors/node/bench/bench_steps.hpp"
#include "runtime/base/trace_ring.hpp"

using namespace deepinfer;

namespace {

sample_list samples_of(std::initializer_list<double> values) {
  sample_list out;
  for (const auto value : values) out.add(value);
  return out;
}

/// A step whose forward begins at `begin` us and takes 80, with 20 of sampling after it.
step_trace step_at(std::uint64_t step, std::int64_t begin_us, const char* kind, std::int32_t rows,
                   std::int32_t tokens) {
  const auto begin = begin_us * 1000;
  step_trace it;
  it.step = step_id{step};
  it.kind = kind;
  it.rows = rows;
  it.tokens = tokens;
  it.plan_begin_ns = begin - 30'000;
  it.plan_end_ns = begin - 23'000;
  it.settle_begin_ns = begin + 105'000;
  it.settle_end_ns = begin + 110'000;
  it.device.begin_ns = {begin - 10'000, begin, begin + 80'000, begin + 100'000};
  it.device.end_ns = {begin - 5'000, begin + 80'000, begin + 100'000, begin + 104'000};
  return it;
}

bool is_near(double a, double b) {
  return a == doctest::Approx(b).epsilon(1e-9);
}

}  // namespace

TEST_CASE("a list of samples has a median, the median distance from it, and both ends") {
  const auto odd = samples_of({5, 1, 9, 2, 100});
  CHECK(odd.count() == 5);
  CHECK(odd.median() == 5);
  CHECK(odd.mad() == 4);  // distances 0 4 4 3 95
  CHECK(odd.min() == 1);
  CHECK(odd.max() == 100);
  CHECK(odd.sum() == 117);
  auto even = samples_of({4, 1});
  CHECK(even.median() == 2.5);
  CHECK(even.mad() == 1.5);
  even.add(samples_of({-7, 8}));
  CHECK(even.count() == 4);
  CHECK(even.median() == 2.5);
  CHECK(even.min() == -7);
  const auto one = samples_of({-3});
  CHECK(one.median() == -3);
  CHECK(one.max() == -3);
  CHECK(one.mad() == 0);
}

TEST_CASE("a list without samples is all zeros, and a summary scales every value") {
  const sample_list none;
  CHECK(none.count() == 0);
  for (const auto value : {none.median(), none.mad(), none.min(), none.max(), none.sum()})
    CHECK(value == 0.0);
  const auto summary = summary_of(samples_of({2, 4, 9}), 10.0);
  CHECK(summary.at("count").to_number<int>() == 3);
  CHECK(summary.at("median").to_number<double>() == 40.0);
  CHECK(summary.at("mad").to_number<double>() == 20.0);
  CHECK(summary.at("min").to_number<double>() == 20.0);
  CHECK(summary.at("max").to_number<double>() == 90.0);
}

TEST_CASE("a bound is the longer of reading and computing, at the best rates measured") {
  machine_rates rates;
  rates.read = samples_of({5, 10});
  rates.f32 = samples_of({100, 20});
  rates.int8 = samples_of({200});
  const auto reading = rates.bound({.bytes = 1000, .flops = 500});
  CHECK(is_near(reading.seconds, 100));
  CHECK(std::string(reading.by) == "bandwidth");
  const auto computing = rates.bound({.bytes = 10, .flops = 500, .int8_ops = 400});
  CHECK(is_near(computing.seconds, 7));
  CHECK(std::string(computing.by) == "f32");
  const auto mostly_int8 = rates.bound({.flops = 100, .int8_ops = 800});
  CHECK(is_near(mostly_int8.seconds, 5));
  CHECK(std::string(mostly_int8.by) == "int8");
  const auto nothing = rates.bound({});
  CHECK(nothing.seconds == 0.0);
  CHECK(std::string(nothing.by).empty());
}

TEST_CASE("a probe measures all three rates of a team, and keeps every measurement") {
  auto probe = machine_probe::make();
  REQUIRE(probe.has_value());
  inline_team alone;
  machine_rates rates;
  probe->run(alone, rates);
  probe->run(alone, rates);
  CHECK(rates.threads == 1);
  for (const auto* it : {&rates.read, &rates.f32, &rates.int8}) {
    CHECK(it->count() == 2);
    CHECK(it->min() > 0);
    CHECK(it->max() < std::numeric_limits<double>::infinity());
  }
  const auto facts = facts_of_machine();
  CHECK(!facts.cpu.empty());
  CHECK(facts.cores >= 1);
  CHECK(facts.memory_bytes > 0);
}

TEST_CASE("huge memory is zeroed, keeps its address when it moves, and may be empty") {
  const std::size_t bytes = (std::size_t{4} << 20) + 5;
  auto memory = huge_memory::map(bytes);
  REQUIRE(memory.has_value());
  auto* data = memory->data();
  CHECK(reinterpret_cast<std::uintptr_t>(data) % (std::size_t{2} << 20) == 0);
  CHECK(data[0] == std::byte{0});
  data[0] = data[bytes - 1] = std::byte{7};
  huge_memory moved = std::move(*memory);
  CHECK(moved.data() == data);
  CHECK(moved.size() == bytes);
  CHECK(moved.data()[bytes - 1] == std::byte{7});
  huge_memory other;
  other = std::move(moved);
  CHECK(other.data() == data);
}

TEST_CASE("steps come out of the trace with their device time and the host's work") {
  const step_trace steps[] = {step_at(4, 1000, "prefill", 2, 14), step_at(5, 1120, "decode", 2, 2),
                              step_at(6, 1250, "decode", 2, 2), step_at(7, 1400, "decode", 1, 1)};
  const auto read = read_steps(chrome_trace(steps), 4);
  REQUIRE(read.has_value());
  REQUIRE(read->size() == 3);
  const auto& first = read->front();
  CHECK(first.step == 5);
  CHECK(first.kind == "decode");
  CHECK(first.rows == 2);
  CHECK(first.tokens == 2);
  CHECK(is_near(first.end - first.begin, 100e-6));
  CHECK(is_near(first.host_seconds, 12e-6));
  CHECK(read_steps(chrome_trace(steps))->size() == 4);
  CHECK(read_steps("{\"traceEvents\":[{}]}").error().code == errc::internal);
  CHECK(!read_steps("no trace").has_value());
}

TEST_CASE("a step lasts until the next one begins, the last one of a run until it ends") {
  const step_trace trace[] = {step_at(4, 1000, "prefill", 2, 14), step_at(5, 1120, "decode", 2, 2),
                              step_at(6, 1250, "decode", 2, 2), step_at(7, 1400, "decode", 1, 1),
                              step_at(9, 9000, "prefill", 1, 7)};
  const auto steps = read_steps(chrome_trace(trace)).value();
  step_times decode;
  decode.add(steps, "decode", 2);
  CHECK(decode.steps == 3);
  CHECK(decode.rows == 5);
  CHECK(decode.tokens == 5);
  REQUIRE(decode.seconds.count() == 2);
  CHECK(is_near(decode.seconds.min(), 130e-6));
  CHECK(is_near(decode.seconds.max(), 150e-6));
  CHECK(is_near(decode.span_seconds, 380e-6));  // 130 + 150 + 100: step 8 is not there
  CHECK(is_near(decode.host_seconds, 36e-6));
  CHECK(is_near(decode.rows_per_second.median(), 5 / 380e-6));
  step_times prefill;
  prefill.add(steps, "prefill", 0);
  prefill.add(steps, "prefill", 0);
  CHECK(prefill.steps == 4);
  CHECK(prefill.tokens == 42);
  CHECK(prefill.seconds.count() == 4);
  CHECK(is_near(prefill.seconds.max(), 120e-6));
  CHECK(prefill.rows_per_second.count() == 2);
}
