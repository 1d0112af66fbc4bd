#include <doctest/doctest.h>

#include <map>
#include <regex>
#include <sstream>
#include <thread>

#include "runtime/base/file.hpp"
#include "runtime/base/metrics.hpp"
#include "tests/core/death.hpp"
#include "tests/support/counted_allocations.hpp"

using namespace deepinfer;

namespace {

/// The samples of a text by name and labels. Every line must be one of the format's.
std::map<std::string, double> samples_of(const std::string& text) {
  static const std::regex comment(R"(# (HELP|TYPE) [a-zA-Z_:][a-zA-Z0-9_:]* .+)");
  static const std::regex sample(
    R"(([a-zA-Z_:][a-zA-Z0-9_:]*\{([a-z_]+="([^"\\]|\\["\\n])*",?)*\}) (-?[0-9.e+-]+|\+Inf|NaN))");
  std::map<std::string, double> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, comment)) continue;
    std::smatch match;
    CAPTURE(line);
    REQUIRE(std::regex_match(line, match, sample));
    CHECK(out.emplace(match[1], std::stod(match[4])).second);  // no series twice
  }
  CHECK(text.back() == '\n');
  return out;
}

const std::string common = "model_name=\"tiny\",engine=\"0\"";

}  // namespace

TEST_CASE("a model's name that comes late is in every series from then on") {
  metrics counts("deepinfer:");
  counts.add(metric::generation_tokens_total, 3);
  CHECK(samples_of(counts.text())
          .at("deepinfer:generation_tokens_total{model_name=\"\",engine=\"0\"}") == 3.0);
  counts.name_model("tiny");
  counts.add(metric::generation_tokens_total, 1);
  const auto text = counts.text();
  CHECK(samples_of(text).at("deepinfer:generation_tokens_total{" + common + "}") == 4.0);
  CHECK(samples_of(text).contains("deepinfer:steps_total{" + common + ",kind=\"mixed\"}"));
  CHECK(text.find("model_name=\"\"") == std::string::npos);
}

TEST_CASE("the text of metrics is in the format of Prometheus, with every series from the start") {
  metrics counts("deepinfer:", "tiny");
  const auto before = samples_of(counts.text());
  CHECK(before.at("deepinfer:num_requests_running{" + common + "}") == 0.0);
  CHECK(before.at("deepinfer:steps_total{" + common + ",kind=\"mixed\"}") == 0.0);
  CHECK(before.at("deepinfer:prefill_votes_total{" + common +
                  ",rule=\"points\",outcome=\"vetoed\"}") == 0.0);
  CHECK(before.at("deepinfer:kv_transfer_seconds_count{" + common + "}") == 0.0);
  CHECK(before.at("process_cpu_seconds_total{" + common + "}") > 0.0);
  CHECK(before.at("process_resident_memory_bytes{" + common + "}") > 1e6);
  CHECK(before.at("process_open_fds{" + common + "}") >= 3.0);
  CHECK(before.at("process_start_time_seconds{" + common + "}") > 1.6e9);
  int builds = 0;
  for (const auto& [name, value] : before)
    if (name.rfind("deepinfer:build_info{", 0) == 0) builds += value == 1.0;
  CHECK(builds == 1);
  counts.add(metric::generation_tokens_total, 3);
  counts.add(metric::steps_total, 2, {"decode"});
  counts.add(metric::http_requests_total, 1, {"/v1/models", "GET", "200"});
  counts.set(metric::kv_cache_usage_perc, 0.25);
  const auto after = samples_of(counts.text());
  CHECK(after.at("deepinfer:generation_tokens_total{" + common + "}") == 3.0);
  CHECK(after.at("deepinfer:steps_total{" + common + ",kind=\"decode\"}") == 2.0);
  CHECK(after.at("deepinfer:http_requests_total{" + common +
                 ",handler=\"/v1/models\",method=\"GET\",status=\"200\"}") == 1.0);
  CHECK(after.at("deepinfer:kv_cache_usage_perc{" + common + "}") == 0.25);
  CHECK(after.size() == before.size() + 1);
}

TEST_CASE("each metric has one line of help and one of its type, before its series") {
  std::istringstream lines(metrics().text());
  std::map<std::string, int> helps, types;
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string mark, what;
    words >> mark >> what;
    if (mark == "#") {
      words >> name;
      ++(what == "HELP" ? helps : types)[name];
    } else {
      CHECK(line.rfind(name, 0) == 0);
    }
  }
  CHECK(helps.size() == static_cast<std::size_t>(metric::count) + 6);
  CHECK(helps == types);
  for (const auto& [of, count] : helps) {
    CAPTURE(of);
    CHECK(count == 1);
  }
}

TEST_CASE("the buckets of a histogram are cumulative and end with its count") {
  metrics counts("d:", "tiny");
  for (const double seconds : {0.0005, 0.001, 0.0011, 5000.0})
    counts.observe(metric::time_to_first_token_seconds, seconds);
  const auto samples = samples_of(counts.text());
  const auto bucket = [&](const std::string& bound) {
    return samples.at("d:time_to_first_token_seconds_bucket{" + common + ",le=\"" + bound + "\"}");
  };
  CHECK(bucket("0.001") == 2.0);  // a bound belongs to its bucket
  CHECK(bucket("0.0025") == 3.0);
  CHECK(bucket("2560") == 3.0);
  CHECK(bucket("+Inf") == 4.0);
  CHECK(samples.at("d:time_to_first_token_seconds_count{" + common + "}") == 4.0);
  CHECK(samples.at("d:time_to_first_token_seconds_sum{" + common + "}") ==
        doctest::Approx(5000.0026));
  for (std::size_t i = 0; i < static_cast<std::size_t>(metric::count); ++i) {
    const auto& info = info_of(static_cast<metric>(i));
    CAPTURE(info.name);
    CHECK(std::is_sorted(info.buckets.begin(), info.buckets.end()));
    CHECK(info.buckets.empty() == (info.kind != metric_kind::histogram));
    CHECK(!info.help.empty());
    CHECK((info.kind != metric_kind::counter || info.name.ends_with("_total")));
  }
}

TEST_CASE("a quantile lies within the bucket of its rank") {
  metrics counts;
  CHECK(!counts.quantile(metric::time_to_first_token_seconds, 0.5));
  for (int i = 0; i < 100; ++i)
    counts.observe(metric::time_to_first_token_seconds, i < 60 ? 0.015 : 0.2);
  CHECK(*counts.quantile(metric::time_to_first_token_seconds, 0.5) ==
        doctest::Approx(0.01 + 0.01 * 50 / 60));
  CHECK(*counts.quantile(metric::time_to_first_token_seconds, 0.95) ==
        doctest::Approx(0.1 + 0.15 * 35 / 40));
  counts.observe(metric::kv_transfer_seconds, 1e9);
  CHECK(*counts.quantile(metric::kv_transfer_seconds, 0.5) == 2560.0);
}

TEST_CASE("names and label values can not break the format") {
  metrics counts("9 bad-prefix\n", "a\"b\\c\nd");
  counts.add(metric::router_requests_total, 1, {"x\ny\"z\\"});
  const auto samples = samples_of(counts.text());
  CHECK(
    samples.at("_9_bad_prefix_router_requests_total{model_name=\"a\\\"b\\\\c\\nd\",engine=\"0\","
               "replica=\"x\\ny\\\"z\\\\\"}") == 1.0);
}

TEST_CASE("what several threads count at once is exact") {
  metrics counts;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&counts, t] {
      const auto own = std::to_string(t);
      for (int i = 0; i < 20'000; ++i) {
        counts.add(metric::generation_tokens_total);
        counts.add(metric::inflight_tokens, i % 2 == 0 ? 3 : -3);
        counts.observe(metric::plan_duration_seconds, 0.25);
        counts.add(metric::router_requests_total, 1, {i % 2 == 0 ? own : "shared"});
        if (i % 5000 == 0) CHECK(!counts.text().empty());
      }
    });
  for (auto& it : threads) it.join();
  CHECK(counts.value(metric::generation_tokens_total) == 80'000.0);
  CHECK(counts.value(metric::inflight_tokens) == 0.0);
  CHECK(counts.value(metric::plan_duration_seconds) == 80'000.0);
  CHECK(counts.value(metric::router_requests_total, {"shared"}) == 40'000.0);
  CHECK(counts.value(metric::router_requests_total, {"2"}) == 10'000.0);
  CHECK(counts.value(metric::router_requests_total, {"4"}) == 0.0);
  const auto text = counts.text();
  CHECK(text.find("plan_duration_seconds_sum{model_name=\"\",engine=\"0\"} 20000\n") !=
        std::string::npos);
}

TEST_CASE("a series that exists costs no allocation") {
  metrics counts;
  counts.add(metric::http_requests_total, 1, {"/v1/chat/completions", "POST", "200"});
  const auto allocations = test::allocations_of([&] {
    for (int i = 0; i < 1000; ++i) {
      counts.add(metric::http_requests_total, 1, {"/v1/chat/completions", "POST", "200"});
      counts.observe(metric::step_duration_seconds, 0.001 * i, {"decode"});
      counts.set(metric::kv_cache_usage_perc, 0.5);
      counts.add(metric::inflight_steps, 1);
    }
  });
  CHECK(allocations == 0);
  CHECK(counts.value(metric::step_duration_seconds, {"decode"}) == 1000.0);
}

TEST_CASE("a metric keeps a bounded number of series") {
  metrics counts;
  for (std::size_t i = 0; i < 2 * metrics::series_limit; ++i)
    counts.add(metric::http_requests_total, 1, {std::to_string(i), "GET", "200"});
  CHECK(counts.value(metric::http_requests_total, {"7", "GET", "200"}) == 1.0);
  CHECK(counts.value(metric::http_requests_total, {"other", "other", "other"}) ==
        static_cast<double>(metrics::series_limit + 1));
}

TEST_CASE("owners of a gauge share it, and take their part with them") {
  metrics counts;
  gauge_share first(&counts, metric::inflight_steps);
  first.set(2);
  {
    gauge_share second(&counts, metric::inflight_steps);
    second.set(3);
    second.set(1);
    CHECK(counts.value(metric::inflight_steps) == 3.0);
  }
  CHECK(counts.value(metric::inflight_steps) == 2.0);
}

TEST_CASE("a wrong number of labels and a call that does not fit the kind are programmer errors") {
  metrics counts;
  CHECK(test::death_message([&] { counts.add(metric::steps_total); }).find("steps_total has 1") !=
        std::string::npos);
  CHECK(test::death_message([&] { counts.add(metric::generation_tokens_total, 1, {"x"}); }) != "");
  CHECK(test::death_message([&] { counts.set(metric::generation_tokens_total, 1); }) != "");
  CHECK(test::death_message([&] { counts.add(metric::generation_tokens_total, -1); }) != "");
  CHECK(test::death_message([&] { counts.observe(metric::inflight_steps, 1); }) != "");
  CHECK(test::death_message([&] { counts.add(metric::plan_duration_seconds); }) != "");
}

TEST_CASE("config/metrics.md is what `deepinfer config metrics` prints") {
  const auto text = read_file(std::string(DI_SOURCE_DIR) + "/config/metrics.md");
  REQUIRE(text.has_value());
  const bool is_current = *text == metrics_reference();
  CHECK_MESSAGE(is_current, "run `deepinfer config metrics > config/metrics.md`");
}
