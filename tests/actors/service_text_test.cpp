#include <doctest/doctest.h>

#include "actors/service_text.hpp"

using namespace deepinfer;
using namespace std::chrono_literals;

namespace {

service_counts counts_of(std::uint64_t steps, std::uint64_t tokens) {
  service_counts out;
  out.stats.kv_blocks_total = 1000;
  out.stats.kv_blocks_free = 600;
  out.stats.kv_blocks_cached = 29;
  out.stats.steps = steps;
  out.stats.tokens_out = tokens;
  return out;
}

}  // namespace

TEST_CASE("large numbers have commas, addresses of version six brackets") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(131'072) == "131,072");
  CHECK(grouped(-1'234'567) == "-1,234,567");
  CHECK(url_of("127.0.0.1", 8000) == "http://127.0.0.1:8000");
  CHECK(url_of("::1", 1) == "http://[::1]:1");
}

TEST_CASE("the ready line says where, which model, and how much fits") {
  node_facts facts;
  facts.model_name = "tiny-v41";
  facts.num_kv_blocks = 2048;
  facts.block_size = 64;
  facts.max_model_len = 8192;
  CHECK(ready_line(facts, "http://127.0.0.1:8000") ==
        "Ready: http://127.0.0.1:8000 (model tiny-v41, 2048 KV blocks x 64 = 131,072 tokens, about "
        "16 requests at full length)");
  facts.max_model_len = 8193;  // one block more each: fifteen fit
  CHECK(ready_line(facts, "x").find("about 15 requests") != std::string::npos);
  facts.max_model_len = 131'072;
  CHECK(ready_line(facts, "x").find("about 1 request at") != std::string::npos);
}

TEST_CASE("a status line tells rates of the time since the last, and nothing where nothing moved") {
  status_line line;
  auto first = counts_of(100, 1000);
  REQUIRE(line.next(first, 5.0));
  CHECK_FALSE(line.next(first, 5.0));
  auto next = counts_of(200, 3060);
  next.stats.running = 12;
  next.stats.queued = 3;
  next.stats.device_span_ns = 790'000'000;
  next.stats.device_busy_ns = 787'630'000;
  next.stats.deferred_blocks = 4;
  next.prompt_tokens = 9170;
  next.prefix_queries = 1000;
  next.prefix_hits = 620;
  CHECK(line.next(next, 5.0).value() ==
        "run 12 wait 3 | prompt 1834 tok/s gen 412 tok/s | kv 37.1 % hit 62 % | step 7.9 ms idle "
        "0.3 % | defer 4 preempt 0");
  auto idle = next;
  idle.stats.running = 0;
  idle.stats.queued = 0;
  CHECK(line.next(idle, 5.0).value().starts_with("run 0 wait 0 | prompt 0 tok/s gen 0 tok/s"));
  CHECK_FALSE(line.next(idle, 5.0));
}

TEST_CASE("a rank that was started again counts from zero, not backwards") {
  status_line line;
  static_cast<void>(line.next(counts_of(100, 1000), 1.0));
  const auto text = line.next(counts_of(10, 50), 1.0);
  REQUIRE(text);
  CHECK(text->find("gen 50 tok/s") != std::string::npos);
}

TEST_CASE("a door that others can open without a key is warned of, one of this machine is not") {
  engine_settings settings;
  CHECK(exposure_warnings(settings).empty());
  settings.server.host = "0.0.0.0";
  CHECK(exposure_warnings(settings).size() == 1);
  settings.server.api_keys = {"k"};
  CHECK(exposure_warnings(settings).empty());
  settings.server.api_keys.clear();
  settings.server.api_key_file = "keys";
  CHECK(exposure_warnings(settings).empty());
  for (const auto* host : {"localhost", "::1", "127.0.0.2"}) {
    settings = {};
    settings.server.host = host;
    CHECK(exposure_warnings(settings).empty());
  }
}

TEST_CASE("a device whose threads take every core is told how to leave one") {
  const auto hint = cores_hint(4, 4);
  REQUIRE(hint);
  CHECK(hint->find("4 threads take all 4 cores") != std::string::npos);
  CHECK(hint->find("--num-threads 3") != std::string::npos);
  CHECK(cores_hint(8, 4));
  CHECK_FALSE(cores_hint(3, 4));
  CHECK_FALSE(cores_hint(1, 1));  // there is no fewer
}

TEST_CASE("open requests have the time that was given, and no more") {
  const auto says = [](std::chrono::milliseconds limit, const std::string& text) {
    return stopping_line(limit).find("open ones have " + text + ";") != std::string::npos;
  };
  CHECK(says(200ms, "200ms"));
  CHECK(says(1500ms, "1500ms"));
  CHECK(says(30s, "30s"));
  CHECK(says(0ms, "0"));

  CHECK(time_for_answers(0ms) == 0ms);  // the limit is over: what is open does not end by itself
  CHECK(time_for_answers(1ms) > 1ms);   // all have ended, just now: what they said is on its way
  CHECK(time_for_answers(1ms) <= 1s);
  CHECK(time_for_answers(20s) == 20s);
}
