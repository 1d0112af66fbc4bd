// What `bench serve` sends and how it counts, without a server.
#include <doctest/doctest.h>

#include <cmath>

#include "actors/node/bench/serve_load.hpp"
#include "actors/node/bench/serve_record.hpp"
#include "runtime/base/file.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;

namespace {

constexpr std::int64_t ms = 1'000'000;

std::string chunk(std::string_view text) {
  return to_text(json::object{{"choices", json::array{json::object{{"text", text}}}}});
}

std::string usage(int prompt, int output, int cached) {
  return to_text(json::object{
    {"choices", json::array{}},
    {"usage", json::object{{"prompt_tokens", prompt},
                           {"completion_tokens", output},
                           {"prompt_tokens_details", json::object{{"cached_tokens", cached}}}}}});
}

}  // namespace

TEST_CASE("the first token is the first content: role chunks, comments and usage are none") {
  serve_record it;
  it.sent_ns = 100 * ms;
  it.take_event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", 101 * ms);
  it.take_event(R"({"choices":[{"delta":{"content":null}}]})", 102 * ms);
  it.take_event(R"({"choices":[{"delta":{"reasoning_content":"Hm"}}]})", 110 * ms);
  it.take_event(R"({"choices":[{"delta":{"content":"a"}}]})", 115 * ms);
  it.take_event(usage(7, 3, 4), 130 * ms);  // late, and no token
  it.take_event("[DONE]", 131 * ms);
  it.end(200, "", 131 * ms);
  CHECK(it.first_ns == 110 * ms);
  CHECK(it.last_ns == 115 * ms);
  CHECK(it.gaps_ns == std::vector<std::int64_t>{5 * ms});
  const auto report = report_of({it}, {});
  CHECK(report.ttft.mean == doctest::Approx(10));
  CHECK(report.tpot.mean == doctest::Approx(2.5));
  CHECK(report.output_tokens == 3);
  CHECK(report.cached_tokens == 4);
  CHECK(report.tokens_per_event == doctest::Approx(1.5));
}

TEST_CASE("what failed is counted by code and is in no latency") {
  std::vector<serve_record> records(4);
  for (auto& it : records) it.sent_ns = 1 * ms;
  records[0].take_event(chunk("x"), 11 * ms);
  records[0].take_event(usage(5, 1, 0), 12 * ms);
  records[0].end(200, "", 12 * ms);
  records[1].end(429, R"({"error":{"code":"queue_full"}})", 2 * ms);
  records[2].end(fail(errc::io_failed, "reset"), "", 2 * ms);
  records[3].take_event(chunk("x"), 2 * ms);
  records[3].take_event(R"({"error":{"code":"rank_lost"}})", 3 * ms);
  records[3].end(200, "", 3 * ms);
  goodput_bounds bounds;
  bounds.ttft_ms = 5;
  const auto report = report_of(records, bounds);
  CHECK(report.completed == 1);
  CHECK(report.good == 0);
  CHECK(report.ttft.count == 1);
  CHECK(report.failures ==
        std::map<std::string, std::int32_t>{{"io_failed", 1}, {"queue_full", 1}, {"rank_lost", 1}});
  const auto object = report_object(report);
  CHECK(object.at("failed").to_number<int>() == 3);
  for (const auto* key : {"request_throughput", "output_throughput", "mean_ttft_ms",
                          "median_tpot_ms", "p99_itl_ms", "p90_e2el_ms"})
    CHECK(object.contains(key));
}

TEST_CASE("percentiles lie between neighbours, as numpy's") {
  const auto it = latency_of({4, 1, 3, 2});
  CHECK(it.median == doctest::Approx(2.5));
  CHECK(it.p90 == doctest::Approx(3.7));
  CHECK(it.mean == doctest::Approx(2.5));
  CHECK(latency_of({}).count == 0);
}

TEST_CASE("random prompts are each their own, repeated prefixes are the same, a seed is a load") {
  serve_load_settings settings;
  settings.requests = 20;
  settings.input_len = 16;
  const auto prompts = make_prompts(settings).value();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto& ids = prompts[i].prompt.as_array();
    CHECK(ids.size() == 16);
    for (const auto& id : ids) CHECK(id.as_int64() >= first_random_id);
    for (std::size_t j = 0; j < i; ++j) CHECK(prompts[j].prompt != prompts[i].prompt);
  }
  CHECK(make_prompts(settings).value()[3].prompt == prompts[3].prompt);
  settings.dataset = "prefix-repeat";
  settings.prefix_len = 8;
  const auto shared = make_prompts(settings).value();
  for (std::size_t i = 0; i < 8; ++i)
    CHECK(shared[0].prompt.as_array()[i] == shared[1].prompt.as_array()[i]);
  CHECK(shared[0].prompt != shared[1].prompt);
  settings.prefix_len = 16;
  CHECK(make_prompts(settings).error().code == errc::bad_config);
}

TEST_CASE("gaps between requests have the asked mean, and spread by their burstiness") {
  for (const double burstiness : {0.5, 1.0, 4.0}) {
    CAPTURE(burstiness);
    serve_load_settings settings;
    settings.requests = 20'000;
    settings.rate = 100;
    settings.burstiness = burstiness;
    const auto times = arrival_times(settings);
    double sum = 0, squares = 0;
    for (std::size_t i = 1; i < times.size(); ++i) {
      const double gap = static_cast<double>(times[i] - times[i - 1]) / 1e7;  // mean 1
      CHECK(gap >= 0);
      sum += gap;
      squares += gap * gap;
    }
    const double n = static_cast<double>(times.size() - 1);
    const double mean = sum / n;
    CHECK(mean == doctest::Approx(1).epsilon(0.05));
    CHECK((squares / n - mean * mean) * burstiness == doctest::Approx(1).epsilon(0.1));
  }
  serve_load_settings at_once;
  at_once.requests = 3;
  CHECK(arrival_times(at_once) == std::vector<std::int64_t>{0, 0, 0});
}

TEST_CASE("a file's mistake names file, line and what was expected") {
  const temp_directory folder;
  const auto path = folder.path() + "/load.jsonl";
  REQUIRE(write_file(path, "{\"prompt\": \"a\", \"output_len\": 3}\n\n{\"messages\": [1]}\n"));
  serve_load_settings settings;
  settings.dataset = path;
  settings.requests = 3;
  const auto read = make_prompts(settings);
  REQUIRE(read);
  CHECK((*read)[0].output_len == 3);
  CHECK((*read)[1].prompt.is_null());
  CHECK((*read)[2].prompt == (*read)[0].prompt);
  REQUIRE(write_file(path, "{\"prompt\": \"a\"}\n{}\n"));
  CHECK(make_prompts(settings).error().message.find("load.jsonl:2: expected one of") !=
        std::string::npos);
}

TEST_CASE("bounds of goodput and series of metrics are read, or refused by name") {
  const auto bounds = parse_goodput("ttft:0.5s,itl:50ms");
  REQUIRE(bounds);
  CHECK(bounds->ttft_ms == 500);
  CHECK(bounds->itl_ms == 50);
  CHECK(!bounds->tpot_ms);
  for (const auto* text : {"ttft", "x:5ms", "ttft:-1ms", "ttft:ms"})
    CHECK(parse_goodput(text).error().message.find(text) != std::string::npos);
  const std::string_view text =
    "# HELP x\ndeepinfer:device_idle_seconds_total{cause=\"plan\"} 0.5\n"
    "deepinfer:device_idle_seconds_total{cause=\"vote\"} 0.25\nother_device_busy 3\n";
  CHECK(metric_in(text, "device_idle_seconds_total") == doctest::Approx(0.75));
  CHECK(metric_in(text, "device_idle_seconds_total", "cause=\"vote\"") == doctest::Approx(0.25));
  CHECK(!metric_in(text, "device_idle_seconds_total", "cause=\"no_work\""));
  CHECK(!metric_in(text, "busy_seconds"));
}
