#include <doctest/doctest.h>

#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "actors/request_intake.hpp"

using namespace deepinfer;

namespace {

request_intake make_intake(std::int32_t max_model_len = 64) {
  auto words = tokenizer::open(std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41").value();
  intake_facts facts;
  facts.model_name = "tiny-v41";
  facts.vocab_size = 2048;
  facts.max_model_len = max_model_len;
  facts.eos_ids = {1};
  return request_intake(std::move(words), std::move(facts));
}

generate_request with_ids(std::vector<token_id> ids) {
  generate_request request;
  request.ids = std::move(ids);
  return request;
}

}  // namespace

TEST_CASE("a text is continued as it stands, BOS first, and ids are used as given") {
  const auto intake = make_intake();
  generate_request request;
  request.text = "Hello";
  const auto accepted = intake.accept(request, 7);
  REQUIRE(accepted.has_value());
  CHECK(accepted->prompt->front() == 0);
  CHECK(accepted->prompt->size() > 1);
  CHECK(accepted->params->seed == 7);
  CHECK(*intake.accept(with_ids({5, 6}), 7)->prompt == std::vector<token_id>{5, 6});
}

TEST_CASE("a seed and other wishes of the request win over what the node would choose") {
  auto request = with_ids({5});
  request.sampling.seed = 42;
  request.sampling.temperature = 0.25f;
  request.sampling.top_k = -1;
  const auto accepted = make_intake().accept(request, 7);
  REQUIRE(accepted.has_value());
  CHECK(accepted->params->seed == 42);
  CHECK(accepted->params->temperature == 0.25f);
  CHECK(accepted->params->top_k == 0);
}

TEST_CASE("a bad request is refused with the field's name, what was found and what was expected") {
  struct bad_case {
    const char* param;
    errc code;
    void (*spoil)(generate_request&);
  };
  const bad_case table[] = {
    {"input", errc::invalid_argument, [](generate_request& it) { it.ids.reset(); }},
    {"input", errc::invalid_argument, [](generate_request& it) { it.text = "x"; }},
    {"ids", errc::invalid_argument, [](generate_request& it) { it.ids->clear(); }},
    {"ids", errc::invalid_argument, [](generate_request& it) { it.ids->push_back(2048); }},
    {"ids", errc::invalid_argument, [](generate_request& it) { it.ids->push_back(-1); }},
    {"prompt", errc::context_length_exceeded, [](generate_request& it) { it.ids->assign(64, 5); }},
    {"temperature", errc::invalid_argument,
     [](generate_request& it) { it.sampling.temperature = -0.1f; }},
    {"temperature", errc::invalid_argument,
     [](generate_request& it) {
       it.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
     }},
    {"top_p", errc::invalid_argument, [](generate_request& it) { it.sampling.top_p = 0.0f; }},
    {"top_p", errc::invalid_argument, [](generate_request& it) { it.sampling.top_p = 1.5f; }},
    {"min_p", errc::invalid_argument, [](generate_request& it) { it.sampling.min_p = 2.0f; }},
    {"presence_penalty", errc::invalid_argument,
     [](generate_request& it) { it.sampling.presence_penalty = 3.0f; }},
    {"frequency_penalty", errc::invalid_argument,
     [](generate_request& it) { it.sampling.frequency_penalty = -3.0f; }},
    {"repetition_penalty", errc::invalid_argument,
     [](generate_request& it) { it.sampling.repetition_penalty = 0.0f; }},
    {"repetition_penalty", errc::invalid_argument,
     [](generate_request& it) { it.sampling.repetition_penalty = 1e-6f; }},
    {"repetition_penalty", errc::invalid_argument,
     [](generate_request& it) { it.sampling.repetition_penalty = 101.0f; }},
    {"repetition_penalty", errc::invalid_argument,
     [](generate_request& it) {
       it.sampling.repetition_penalty = std::numeric_limits<float>::quiet_NaN();
     }},
    {"seed", errc::invalid_argument,
     [](generate_request& it) { it.sampling.seed = std::uint64_t{1} << 63; }},
    {"max_tokens", errc::invalid_argument,
     [](generate_request& it) { it.sampling.max_tokens = 0; }},
    {"min_tokens", errc::invalid_argument,
     [](generate_request& it) {
       it.sampling.max_tokens = 2;
       it.sampling.min_tokens = 3;
     }},
    {"logprobs", errc::invalid_argument, [](generate_request& it) { it.sampling.logprobs = 21; }},
    {"stop", errc::invalid_argument, [](generate_request& it) { it.sampling.stop = {""}; }},
    {"n", errc::invalid_argument, [](generate_request& it) { it.sampling.n = 0; }},
    {"n", errc::invalid_argument, [](generate_request& it) { it.sampling.n = -1; }},
    {"n", errc::invalid_argument, [](generate_request& it) { it.sampling.n = 129; }},
    {"model", errc::model_not_found, [](generate_request& it) { it.model = "other"; }},
    {"stop", errc::invalid_argument,
     [](generate_request& it) { it.sampling.stop.assign(17, "x"); }},
    {"stop_token_ids", errc::invalid_argument,
     [](generate_request& it) { it.sampling.stop_token_ids = {9999}; }},
    {"logit_bias", errc::invalid_argument,
     [](generate_request& it) {
       it.sampling.logit_bias = {{9999, 1.0f}};
     }},
    {"logit_bias", errc::invalid_argument,
     [](generate_request& it) {
       it.sampling.logit_bias = {{5, std::numeric_limits<float>::infinity()}};
     }},
    {"logit_bias", errc::invalid_argument,
     [](generate_request& it) {
       it.sampling.logit_bias = {{4, 1.0f}, {5, 3.4e38f}};
     }},
    {"logit_bias", errc::invalid_argument,
     [](generate_request& it) {
       it.sampling.logit_bias = {{5, std::numeric_limits<float>::quiet_NaN()}};
     }},
  };
  const auto intake = make_intake();
  REQUIRE(intake.accept(with_ids({5}), 7).has_value());
  for (const auto& row : table) {
    CAPTURE(row.param);
    auto request = with_ids({5});
    row.spoil(request);
    const auto accepted = intake.accept(request, 7);
    REQUIRE(!accepted.has_value());
    CHECK(accepted.error().code == row.code);
    CHECK(accepted.error().param == row.param);
    CHECK(!accepted.error().message.empty());
  }
}

TEST_CASE("the sampling bounds themselves are accepted, and what is beyond them says so") {
  const auto intake = make_intake();
  auto request = with_ids({5});
  for (const auto sign : {-1.0f, 1.0f}) {
    request.sampling.logit_bias = {{5, sign * 100.0f}};
    request.sampling.repetition_penalty = sign < 0 ? 0.01f : 100.0f;
    CHECK(intake.accept(request, 7).has_value());
  }
  request.sampling.logit_bias = {{5, 100.5f}};
  CHECK(intake.accept(request, 7).error().message ==
        "logit_bias: found 100.5 for id 5, expected -100 to 100");
  request.sampling.repetition_penalty = 1e-6f;
  CHECK(intake.accept(request, 7).error().message ==
        "repetition_penalty: found 1e-06, expected 0.01 to 100");
  request.sampling.repetition_penalty = 1.0f;
  request.sampling.logit_bias.clear();
  request.sampling.top_p = 0.0f;
  CHECK(intake.accept(request, 7).error().message ==
        "top_p: found 0, expected a number above 0, at most 1");
  request.sampling = {};
  request.ids.reset();
  request.chat = R"({"messages": [{"role": "user", "content": "Hi"}], "repetition_penalty": 1e-6})";
  CHECK(intake.accept(request, 7).error().param == "repetition_penalty");
}

TEST_CASE("stop ids that leave no id before min_tokens are refused, eos among them") {
  const auto intake = make_intake();
  auto request = with_ids({5});
  auto& sampling = request.sampling;
  sampling.stop_token_ids.resize(2048);
  std::iota(sampling.stop_token_ids.begin(), sampling.stop_token_ids.end(), 0);
  CHECK(intake.accept(request, 7).has_value());  // the first one ends it
  sampling.min_tokens = 5;
  CHECK(intake.accept(request, 7).error().message ==
        "stop_token_ids: found all 2048 ids of the vocabulary beside min_tokens = 5, expected some "
        "that may come first");
  sampling.stop_token_ids[7] = 8;  // 7 is left
  CHECK(intake.accept(request, 7).has_value());
  sampling.stop_token_ids[1] = 7;  // 1 is left: that is eos
  CHECK(intake.accept(request, 7).error().param == "stop_token_ids");
  sampling.ignore_eos = true;
  CHECK(intake.accept(request, 7).has_value());
}

TEST_CASE("a chat request is rendered, tokenized and parsed as the model's format wants it") {
  const auto intake = make_intake();
  generate_request request;
  request.chat = R"({"messages": [{"role": "user", "content": "Hello"}], "temperature": 0.5})";
  request.sampling.max_tokens = 16;
  const auto accepted = intake.accept(request, 7);
  REQUIRE(accepted.has_value());
  CHECK(*accepted->prompt == std::vector<token_id>{0, 2035, 1291, 2036, 2038});
  CHECK(accepted->params->temperature == 0.5f);
  CHECK(accepted->params->max_tokens == 16);
  REQUIRE(accepted->output.chat.has_value());
  CHECK(accepted->output.chat->start == parse_start::content);
}

TEST_CASE("a chat answer ends where the model would speak for somebody else") {
  const auto intake = make_intake();
  generate_request request;
  request.chat = R"({"messages": [{"role": "user", "content": "a"}], "stop_token_ids": [2036, 9]})";
  const auto ids = intake.accept(request, 7).value().params->stop_token_ids;
  CHECK(ids == std::vector<token_id>{2036, 9, 2035, 2040, 2041});
  request.sampling.ignore_eos = true;
  CHECK(intake.accept(request, 7).value().params->stop_token_ids == std::vector<token_id>{2036, 9});
}

TEST_CASE("a salt comes from the request, or from the body of a chat, and is never empty") {
  const auto intake = make_intake();
  auto request = with_ids({5});
  CHECK(intake.accept(request, 7)->cache_salt == 0);
  request.cache_salt = "a";
  const auto salt = intake.accept(request, 7)->cache_salt;
  CHECK(salt != 0);
  request.cache_salt = "b";
  CHECK(intake.accept(request, 7)->cache_salt != salt);

  generate_request chat;
  chat.chat = R"({"messages": [{"role": "user", "content": "Hi"}], "cache_salt": "a"})";
  CHECK(intake.accept(chat, 7)->cache_salt == salt);
  chat.cache_salt = "b";
  CHECK(intake.accept(chat, 7)->cache_salt == intake.accept(request, 7)->cache_salt);

  for (auto* it : {&request, &chat}) {
    it->cache_salt = "";
    const auto refused = intake.accept(*it, 7);
    REQUIRE(!refused.has_value());
    CHECK(refused.error().param == "cache_salt");
  }
  chat.cache_salt.reset();
  for (const auto* body : {R"(, "cache_salt": "")", R"(, "cache_salt": 7)"}) {
    chat.chat = std::string(R"({"messages": [{"role": "user", "content": "Hi"}])") + body + "}";
    const auto refused = intake.accept(chat, 7);
    REQUIRE(!refused.has_value());
    CHECK(refused.error().param == "cache_salt");
  }
}

TEST_CASE("a chat request that needs structured output is refused, not answered without it") {
  generate_request request;
  request.chat = R"({"messages": [{"role": "user", "content": "Hi"}],
                     "response_format": {"type": "json_object"}})";
  const auto accepted = make_intake().accept(request, 7);
  REQUIRE(!accepted.has_value());
  CHECK(accepted.error().param == "response_format");
}

TEST_CASE("a chat is held to JSON or may call tools, but not both") {
  const auto intake = make_intake(512);
  const auto with = [](const std::string& more) {
    generate_request request;
    request.chat = R"({"messages": [{"role": "user", "content": "Some json"}], )" + more + "}";
    return request;
  };
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";
  const auto format = [](const std::string& type) {
    return R"("response_format": {"type": ")" + type + R"(", "regex": "a+",
           "json_schema": {"name": "s", "schema": {"type": "object"}}})";
  };
  const auto refused = intake.accept(with(tools + ", " + format("json_object")), 7);
  REQUIRE(!refused.has_value());
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(refused.error().param == "response_format");
  CHECK(refused.error().message ==
        "response_format: json_object together with tools is not supported yet; without tools, or "
        "with tool_choice none, it is");
  for (const auto* type : {"json_schema", "regex"}) {
    CAPTURE(type);
    CHECK(intake.accept(with(tools + ", " + format(type)), 7).error().param == "response_format");
  }
  auto held = with(tools);
  held.sampling.grammar = "json_object";
  CHECK(intake.accept(held, 7).error().param == "grammar");

  const auto calls = intake.accept(with(tools + ", " + format("text")), 7).value();
  CHECK(calls.params->grammar.empty());
  CHECK(calls.output.chat->parse_tool_calls);
  CHECK_FALSE(calls.output.chat->json_output);
  for (const auto& more : {std::string(), R"("tool_choice": "none", )" + tools + ", "}) {
    const auto json = intake.accept(with(more + format("json_object")), 7).value();
    CHECK(json.params->grammar == "json_object");
    CHECK(json.output.chat->json_output);
    CHECK_FALSE(json.output.chat->parse_tool_calls);
  }
}

TEST_CASE("a model has to be one of those served, in the request and in the body of a chat") {
  auto words = tokenizer::open(std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41").value();
  intake_facts facts;
  facts.model_name = "one";
  facts.served_names = {"one", "two"};
  facts.vocab_size = 2048;
  facts.max_model_len = 64;
  const request_intake intake(std::move(words), std::move(facts));
  for (const auto* name : {"", "one", "two"}) {
    auto request = with_ids({5});
    request.model = name;
    CHECK(intake.accept(request, 7).has_value());
    generate_request chat;
    chat.chat = R"({"messages": [{"role": "user", "content": "Hi"}]})";
    chat.model = name;
    CHECK(intake.accept(chat, 7).has_value());
    if (*name == 0) continue;
    chat.chat = std::string(R"({"messages": [{"role": "user", "content": "Hi"}], "model": ")") +
                name + R"("})";
    CHECK(intake.accept(chat, 7).has_value());
  }
  auto request = with_ids({5});
  request.model = "three";
  CHECK(intake.accept(request, 7).error().message == "model: found three, served are one, two");
  generate_request chat;
  chat.chat = R"({"messages": [{"role": "user", "content": "Hi"}], "model": "three"})";
  const auto refused = intake.accept(chat, 7);
  REQUIRE(!refused.has_value());
  CHECK(refused.error().code == errc::model_not_found);
  CHECK(refused.error().param == "model");
}

TEST_CASE("a limit of outputs is remembered where the client has set it") {
  const auto intake = make_intake();
  auto request = with_ids({5});
  CHECK_FALSE(intake.accept(request, 7)->asked_max_tokens);
  request.sampling.max_tokens = 9;
  CHECK(intake.accept(request, 7)->asked_max_tokens == 9);
  generate_request chat;
  chat.chat = R"({"messages": [{"role": "user", "content": "Hi"}]})";
  CHECK_FALSE(intake.accept(chat, 7)->asked_max_tokens);
  chat.chat = R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8})";
  CHECK(intake.accept(chat, 7)->asked_max_tokens == 8);
}

TEST_CASE(
  "a limit that goes beyond the context is refused, with both numbers, in a text and a chat") {
  const auto intake = make_intake(64);
  generate_request chat;
  chat.chat = R"({"messages": [{"role": "user", "content": "Hello"}]})";
  for (auto request : {with_ids({5, 6, 7, 8, 9}), chat}) {  // 5 ids either way
    request.sampling.max_tokens = 59;
    CHECK(intake.accept(request, 7)->params->max_tokens == 59);
    for (const auto limit : {60, 5000, std::numeric_limits<std::int32_t>::max()}) {
      request.sampling.max_tokens = limit;
      const auto refused = intake.accept(request, 7);
      REQUIRE(!refused.has_value());
      CHECK(refused.error().code == errc::context_length_exceeded);
      CHECK(refused.error().param == "max_tokens");
      CHECK(refused.error().message ==
            fmt::format("the prompt has 5 tokens and {} more are asked for, {} in all, but the "
                        "context holds 64: shorten the prompt or lower max_tokens",
                        limit, std::int64_t{limit} + 5));
    }
    request.sampling.max_tokens.reset();
    const auto limit = intake.accept(request, 7)->params->max_tokens;
    CHECK((limit == -1 || limit == 59));  // what the context leaves
  }
  // The caller's own limit stands for that of the body.
  chat.chat = R"({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 60})";
  CHECK(intake.accept(chat, 7).error().param == "max_tokens");
  chat.sampling.max_tokens = 4;
  CHECK(intake.accept(chat, 7)->params->max_tokens == 4);
}

TEST_CASE("an empty text starts from BOS alone") {
  generate_request request;
  request.text = "";
  CHECK(*make_intake().accept(request, 7)->prompt == std::vector<token_id>{0});
}
