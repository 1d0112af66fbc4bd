// `bench latency` as scripts see it: fields, types and ranges of --json, refused flags. No time is
// judged here.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/cli/bench_json.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

void check_samples(const json::object& it, const char* key, int count) {
  CAPTURE(key);
  const auto& samples = it.at(key).as_object();
  CHECK(samples.at("count").to_number<int>() == count);
  CHECK(number(samples, "min") > 0);
}

double median_of(const json::object& it, const char* key) {
  return number(it.at(key).as_object(), "median");
}

}  // namespace

TEST_CASE("bench latency tells what drafts gain against what their parts promise, all measured") {
  const auto out = json_of({"bench", "latency", "--tokens", "32", "--prompt", "40", "--repeats",
                            "2", "--num-drafts", "3", "--block-size", "16", "--json"});
  check_head(out, "bench latency");
  CHECK(out.at("settings").as_object().at("drafts").to_number<int>() == 3);
  const auto& decode = out.at("decode").as_object();
  CHECK(keys_of(decode) == std::set<std::string>{"draft_seconds", "drafts", "gain", "gain_share",
                                                 "plain_tokens_per_second", "promised_gain",
                                                 "step_seconds", "tokens_per_second",
                                                 "tokens_per_step", "verify_seconds"});
  for (const auto* key : {"step_seconds", "verify_seconds", "draft_seconds"})
    check_samples(decode, key, 2 * 16);
  for (const auto* key : {"plain_tokens_per_second", "tokens_per_second"})
    check_samples(decode, key, 2);
  CHECK(number(decode, "tokens_per_step") >= 1);
  CHECK(number(decode, "tokens_per_step") <= 1 + 3);
  CHECK(
    number(decode, "promised_gain") ==
    doctest::Approx(number(decode, "tokens_per_step") * median_of(decode, "step_seconds") /
                    (median_of(decode, "verify_seconds") + median_of(decode, "draft_seconds"))));
  CHECK(number(decode, "gain") == doctest::Approx(median_of(decode, "tokens_per_second") /
                                                  median_of(decode, "plain_tokens_per_second")));
  CHECK(number(decode, "gain_share") ==
        doctest::Approx(number(decode, "gain") / number(decode, "promised_gain")));
}

TEST_CASE(
  "bench latency finds a prompt in the device's blocks, and in host memory once they left") {
  const auto out = json_of({"bench", "latency", "--no-drafts", "--prompt", "40", "--repeats", "2",
                            "--block-size", "16", "--json"});
  CHECK(out.at("decode").is_null());
  const auto& first = out.at("first_token").as_object();
  CHECK(keys_of(first) == std::set<std::string>{"hit_gain", "hit_seconds", "hit_tokens",
                                                "host_hit_gain", "host_hit_seconds",
                                                "host_hit_tokens", "miss_seconds"});
  check_samples(first, "miss_seconds", 2 * 2);
  check_samples(first, "hit_seconds", 2);
  check_samples(first, "host_hit_seconds", 2);
  CHECK(first.at("hit_tokens").to_number<int>() == 32);
  CHECK(first.at("host_hit_tokens").to_number<int>() == 32);
  CHECK(number(first, "hit_gain") ==
        doctest::Approx(median_of(first, "miss_seconds") / median_of(first, "hit_seconds")));
}

TEST_CASE("the table of bench latency fits 100 columns, and what can't be is refused and named") {
  check_columns({"bench", "latency", "--tokens", "32", "--repeats", "1", "--prompt", "20", "--text",
                 "A text that is a good deal longer than what fits into a line of the table"});
  check_refused({"bench", "latency", "--tokens", "31"}, "tokens");
  check_refused({"bench", "latency", "--tokens", "3000"}, "--tokens");
  check_refused({"bench", "latency", "--repeats", "0"}, "repeats");
  check_refused({"bench", "latency", "--prompt", "x"}, "prompt");
  check_refused({"bench", "latency", "--prompt", "1000000"}, "--prompt");
}
