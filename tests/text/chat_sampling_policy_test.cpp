// What the sampler is told, under both policies.
#include <doctest/doctest.h>

#include "runtime/text/sampling_policy.hpp"
#include "tests/text/chat_fixtures.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

chat_request request_of(const std::string& more, const char* model = "DeepSeek-V4.1-Flash") {
  auto read =
    parse_chat_request(std::string(R"({"model": ")") + model +
                       R"(", "messages": [{"role": "user", "content": "x"}])" + more + "}");
  REQUIRE_MESSAGE(read, read.error().message);
  return *std::move(read);
}

}  // namespace

TEST_CASE("policy deepseek gives the temperature, top_p and limit of DeepSeek's service") {
  const auto records = chat_records("sampling.jsonl");
  REQUIRE(records.size() == 18);
  for (const auto& record : records) {
    CAPTURE(text_of(record, "id"));
    const auto request = read_chat_request(record.at("request"));
    REQUIRE_MESSAGE(request, request.error().message);
    const auto given = effective_sampling_of(*request, sampling_policy::deepseek);
    const auto& expected = record.at("expect");
    CHECK(given.temperature == doctest::Approx(expected.at("temperature").to_number<double>()));
    CHECK(given.top_p == doctest::Approx(expected.at("top_p").to_number<double>()));
    const auto& limit = expected.at("max_tokens");
    CHECK(given.max_tokens.has_value() == !limit.is_null());
    if (given.max_tokens) CHECK(*given.max_tokens == limit.as_int64());
    for (const auto& row : expected.at("resolve").as_array()) {
      const auto prompt = row.at(0).as_int64();
      const auto context = row.at(1).as_int64();
      CAPTURE(prompt);
      const auto resolved =
        resolve_sampling(*request, sampling_policy::deepseek, prompt, context, 1);
      if (row.at(2).is_int64()) {
        REQUIRE_MESSAGE(resolved, resolved.error().message);
        CHECK(resolved->max_tokens == row.at(2).as_int64());
        continue;
      }
      REQUIRE_FALSE(resolved);
      CHECK(resolved.error().code == errc::context_length_exceeded);
      CHECK(http_status_of(resolved.error().code) == row.at(2).at("status").as_int64());
      CHECK(resolved.error().message.find(std::to_string(prompt)) != std::string::npos);
      CHECK(resolved.error().message.find(std::to_string(context)) != std::string::npos);
    }
  }
}

TEST_CASE("policy as_requested honours temperature and top_p, thinking or not") {
  for (const char* mode : {"enabled", "disabled"}) {
    CAPTURE(mode);
    const auto request = request_of(
      std::string(R"(, "temperature": 0.3, "top_p": 0.4, "thinking": {"type": ")") + mode + "\"}");
    const auto given = effective_sampling_of(request, sampling_policy::as_requested);
    CHECK(given.temperature == 0.3);
    CHECK(given.top_p == 0.4);
  }
  const auto silent = effective_sampling_of(request_of(""), sampling_policy::as_requested);
  CHECK(silent.temperature == 1.0);
  CHECK(silent.top_p == 1.0);
}

TEST_CASE("max_completion_tokens wins over max_tokens, but for policy deepseek") {
  const auto both = request_of(R"(, "max_tokens": 51, "max_completion_tokens": 7)");
  CHECK(effective_sampling_of(both, sampling_policy::as_requested).max_tokens == 7);
  CHECK(effective_sampling_of(both, sampling_policy::deepseek).max_tokens == 51);
  const auto old = request_of(R"(, "max_tokens": 51)");
  CHECK(effective_sampling_of(old, sampling_policy::as_requested).max_tokens == 51);
}

TEST_CASE("a prompt longer than the context is reported as such, without a word on max_tokens") {
  const auto resolved =
    resolve_sampling(request_of(""), sampling_policy::as_requested, 105, 100, 1);
  REQUIRE_FALSE(resolved);
  CHECK(resolved.error().param == "messages");
  CHECK(resolved.error().message.find("max_tokens") == std::string::npos);
}

TEST_CASE("every wish reaches the sampler, and the drawn seed where the client gave none") {
  const auto request = request_of(
    R"(, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "presence_penalty": -1,
       "frequency_penalty": 1, "repetition_penalty": 1.25, "seed": 77, "max_tokens": 9,
       "min_tokens": 2, "logprobs": true, "top_logprobs": 4, "ignore_eos": true,
       "stop_token_ids": [5],
       "logit_bias": {"3": 1.5}, "stop": "END")");
  const auto resolved = resolve_sampling(request, sampling_policy::as_requested, 10, 100, 1);
  REQUIRE(resolved);
  CHECK(resolved->temperature == 0.5f);
  CHECK(resolved->top_p == 0.9f);
  CHECK(resolved->top_k == 3);
  CHECK(resolved->min_p == 0.1f);
  CHECK(resolved->presence_penalty == -1.0f);
  CHECK(resolved->frequency_penalty == 1.0f);
  CHECK(resolved->repetition_penalty == 1.25f);
  CHECK(resolved->seed == 77);
  CHECK(resolved->max_tokens == 9);
  CHECK(resolved->min_tokens == 2);
  CHECK(resolved->logprobs == 4);
  CHECK(resolved->ignore_eos);
  CHECK(resolved->stop_token_ids == std::vector<token_id>{5});
  CHECK(resolved->logit_bias == std::vector<std::pair<token_id, float>>{{3, 1.5f}});
  CHECK(resolved->stop.empty());  // stop strings of a chat are the output parser's
  const auto plain = resolve_sampling(request_of(""), sampling_policy::as_requested, 10, 100, 42);
  REQUIRE(plain);
  CHECK(plain->seed == 42);
  CHECK(plain->logprobs == -1);
}

TEST_CASE("a top_p too small for a float stays above 0, and min_tokens stays below the limit") {
  const auto tiny =
    resolve_sampling(request_of(R"(, "top_p": 1e-300)"), sampling_policy::as_requested, 10, 100, 1);
  REQUIRE(tiny);
  CHECK(tiny->top_p > 0.0f);
  const auto crossed = resolve_sampling(request_of(R"(, "max_tokens": 2, "min_tokens": 3)"),
                                        sampling_policy::as_requested, 10, 100, 1);
  REQUIRE_FALSE(crossed);
  CHECK(crossed.error().param == "min_tokens");
  CHECK(crossed.error().message == "min_tokens: found 3, expected at most the limit of 2");
}

TEST_CASE("a policy is known by its name, an unknown name lists both") {
  CHECK(sampling_policy_named("deepseek") == sampling_policy::deepseek);
  CHECK(sampling_policy_named("as_requested") == sampling_policy::as_requested);
  const auto unknown = sampling_policy_named("greedy");
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().message ==
        "sampling policy: found greedy, expected as_requested or deepseek");
}
