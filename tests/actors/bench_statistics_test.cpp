// What the bench commands compute from measurements: medians, bounds, steps out of a trace.
#include <doctest/doctest.h>

#include <limits>

#include "actors/node/bench/bench_drafts.hpp"
#include "actors/node/bench/bench_kernels.hpp"
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
  it.device.begin_ns = {begin - 10'000, begin, begin + 80'000, 0, begin + 100'000};
  it.device.end_ns = {begin - 5'000, begin + 80'000, begin + 100'000, 0, begin + 104'000};
  return it;
}

/// Two threads that read 100 bytes, compute 50 flops and 200 int8 operations a second.
machine_rates simple_rates() {
  machine_rates rates;
  rates.threads = 2;
  rates.read = samples_of({100, 80});
  rates.f32 = samples_of({50});
  rates.int8 = samples_of({200});
  return rates;
}

/// Three passes of 3, 4 and 8 s that took 12 s inside ops and 15 s of their threads' time.
draft_phase three_passes() {
  draft_phase phase;
  phase.batch = 2;
  phase.drafts = 5;
  phase.seconds = samples_of({8, 3, 4});
  phase.work.ops = {{"argmax", 15, 12'000'000'000, {600, 90, 0}}};
  phase.work.parts = {{"head", 6, 3'000'000'000, {300, 0, 0}},
                      {"experts", 9, 9'000'000'000, {300, 90, 0}}};
  phase.work.total = {600, 90, 0};
  phase.work.op_ns = 12'000'000'000;
  phase.work.busy_ns = 15'000'000'000;
  phase.context_seconds = 0.25;
  return phase;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
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

TEST_CASE("a draft pass is told by itself, by the draft, and in decode steps of its batch") {
  const auto it = draft_object(three_passes(), 16, simple_rates());
  const auto number = [&it](const char* key) { return it.at(key).to_number<double>(); };
  CHECK(number("passes") == 3);
  CHECK(it.at("seconds").at("median").to_number<double>() == 4);
  CHECK(is_near(number("seconds_per_draft"), 0.4));
  CHECK(is_near(number("steps_per_pass"), 0.25));
  CHECK(number("context_seconds") == 0.25);
  CHECK(number("bytes") == 200);
  CHECK(number("flops") == 30);
  CHECK(is_near(number("bound_seconds"), 2));
  CHECK(it.at("bound_by").as_string() == "bandwidth");
  CHECK(is_near(number("share"), 0.5));
  CHECK(is_near(number("share_in_ops"), 12.0 / 15));
  CHECK(is_near(number("share_in_kernels"), 15.0 / 30));
  const auto& head = it.at("parts").at(0);
  CHECK(head.at("calls").to_number<double>() == 2);
  CHECK(head.at("seconds").to_number<double>() == 1);
  CHECK(is_near(head.at("share").to_number<double>(), 3.0 / 15));
  CHECK(head.at("bytes").to_number<double>() == 100);
  CHECK(draft_object(three_passes(), 0, simple_rates()).at("steps_per_pass").is_null());

  const auto text = draft_text(three_passes(), 16, simple_rates());
  for (const auto* part :
       {"batch 2: 5 drafts", "400000.0 us a draft",
        "4000.000 ms +-1000.000 (3000.000..8000.000), 3", "0.25 decode steps of this batch",
        "250.000 ms in every step", "50.0 % of the bound",
        "inside ops      80.0 % of a pass's time", "inside kernels  50.0 % of 2 threads"})
    CHECK_MESSAGE(has(text, part), part << " in " << text);
  CHECK(text.find("experts") < text.find("head"));  // the costliest first
  CHECK(!has(draft_text(three_passes(), 0, simple_rates()), "decode steps"));
}

TEST_CASE("a phase says how much of a step lies inside ops, and how much kernel threads work") {
  offline_phase phase;
  phase.batch = 4;
  phase.steps.seconds = samples_of({4, 6});
  phase.steps.steps = 2;
  phase.steps.rows = 8;
  phase.steps.tokens = 8;
  phase.steps.span_seconds = 10;
  phase.steps.host_seconds = 0.5;
  phase.steps.rows_per_second = samples_of({0.8});
  phase.work = three_passes().work;
  phase.work.op_ns = 9'000'000'000;
  const auto it = phase_object(phase, simple_rates());
  CHECK(is_near(it.at("share_in_ops").to_number<double>(), 0.9));
  CHECK(is_near(it.at("share_in_kernels").to_number<double>(), 0.75));
  CHECK(is_near(it.at("share").to_number<double>(), 0.6));
  CHECK(is_near(it.at("host_share").to_number<double>(), 0.05));
  const auto text = phase_text(phase, "decode", simple_rates());
  CHECK(has(text, "inside ops      90.0 % of a step's time"));
  CHECK(has(text, "inside kernels  75.0 % of 2 threads x a step's time"));
  phase.work = {};
  CHECK(phase_object(phase, simple_rates()).at("share_in_kernels").is_null());
  CHECK(has(phase_text(phase, "decode", simple_rates()), "not counted apart"));
}

TEST_CASE("the table of kernels has one title for all rows of a shape, wherever they come from") {
  std::vector<kernel_result> results(3);
  for (std::size_t i = 0; i < 3; ++i) {
    auto& it = results[i];
    it.facts.name = i == 1 ? "rope" : "linear";
    it.facts.shape = "4 x 4";
    it.facts.rows = static_cast<std::int64_t>(1 + i);
    it.threads = 2;
    it.seconds = samples_of({4, 2, 4});
  }
  results[0].facts.type = "e4m3";
  results[0].facts.packed_bytes = 8'390'000;
  results[0].facts.stored_bytes = 4'200'000;
  results[0].cost = {200, 10, 0};
  results[2].cost = {10, 50, 0};
  const auto text = kernel_table(results, simple_rates());
  CHECK(text.rfind("share: ", 0) == 0);  // what the columns mean comes first
  const auto title = text.find("linear: 4 x 4, 2 threads\n");
  REQUIRE(title != std::string::npos);
  CHECK(text.find("linear: ", title + 1) == std::string::npos);
  CHECK(title < text.find("rope: 4 x 4"));
  CHECK(has(text, "50%   100%  bandwidth    8.39    4.20\n"));
  CHECK(has(text, "25%    50%  f32\n"));
  CHECK(text.find("25%") < text.find("rope: "));
}

TEST_CASE("random ids lie in the vocabulary, follow from the seed and don't repeat themselves") {
  random_ids ids(7, 100), same(7, 100), other(8, 100);
  const auto first = ids.draw(50);
  CHECK(first == same.draw(50));
  CHECK(first != other.draw(50));
  CHECK(first != ids.draw(50));
  CHECK(ids.drawn() == 100);
  for (const auto id : first) CHECK((id >= 0 && id < 100));
}
