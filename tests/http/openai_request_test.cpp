#include <doctest/doctest.h>

#include <string>

#include <fmt/format.h>

#include "runtime/http/openai_request.hpp"

using namespace deepinfer;

namespace {

constexpr auto chat = openai_endpoint::chat;
constexpr auto completion = openai_endpoint::completion;

std::string chat_body(const std::string& rest) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (rest.empty() ? "" : "," + rest) + "}";
}

std::string completion_body(const std::string& rest) {
  return R"({"prompt":"once")" + (rest.empty() ? "" : "," + rest) + "}";
}

openai_job read(openai_endpoint endpoint, const std::string& body, openai_limits limits = {}) {
  auto job = read_openai_request(endpoint, body, limits);
  CAPTURE(body);
  if (!job) FAIL(job.error().message);
  return std::move(*job);
}

error refused(openai_endpoint endpoint, const std::string& body, openai_limits limits = {}) {
  const auto job = read_openai_request(endpoint, body, limits);
  CAPTURE(body);
  REQUIRE_FALSE(job.has_value());
  return job.error();
}

/// Refused by both, naming `param`.
void refused_by_both(const std::string& field, const std::string& param) {
  CAPTURE(field);
  for (const auto& why :
       {refused(chat, chat_body(field)), refused(completion, completion_body(field))}) {
    CHECK(why.code == errc::invalid_argument);
    CHECK(why.param == param);
    CHECK(why.message.find(param) != std::string::npos);
  }
}

json::object chat_of(const openai_job& job) {
  return parse_json(job.requests.at(0).chat.value()).value().as_object();
}

}  // namespace

TEST_CASE("a text, ids and lists of either are prompts") {
  auto job = read(completion, R"({"prompt":"a"})");
  CHECK(job.requests.size() == 1);
  CHECK(job.requests[0].text == "a");
  job = read(completion, R"({"prompt":["a","b"],"n":3})");
  CHECK(job.requests.size() == 2);
  CHECK(job.requests[1].text == "b");
  CHECK(job.requests[1].sampling.n == 3);
  CHECK(job.num_answers() == 6);
  job = read(completion, R"({"prompt":[1,2,3]})");
  CHECK(job.requests.size() == 1);
  CHECK(job.requests[0].ids == std::vector<token_id>{1, 2, 3});
  job = read(completion, R"({"prompt":[[1],[2,3]]})");
  CHECK(job.requests.size() == 2);
  CHECK(job.requests[1].ids == std::vector<token_id>{2, 3});
  job = read(completion, R"({"prompt":""})");
  CHECK(job.requests[0].text == "");
}

TEST_CASE("a prompt that is none is refused by name and place") {
  for (const auto* body : {R"({})", R"({"prompt":null})", R"({"prompt":[]})", R"({"prompt":5})"})
    CHECK(refused(completion, body).param == "prompt");
  CHECK(refused(completion, R"({"prompt":[[]]})").param == "prompt[0]");
  CHECK(refused(completion, R"({"prompt":[1,-1]})").param == "prompt[1]");
  CHECK(refused(completion, R"({"prompt":[1.5]})").param == "prompt[0]");
  CHECK(refused(completion, R"({"prompt":[2147483648]})").param == "prompt[0]");
  CHECK(refused(completion, R"({"prompt":["a",[1]]})").param == "prompt[1]");
  CHECK(refused(completion, R"({"prompt":[[1],"a"]})").param == "prompt[1]");
  openai_limits few;
  few.max_answers = 4;
  CHECK(refused(completion, R"({"prompt":["a","b","c"],"n":2})", few).param == "prompt");
}

TEST_CASE("sampling fields reach the engine") {
  const auto job =
    read(completion, completion_body(R"("temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,)"
                                     R"("presence_penalty":-1,"frequency_penalty":2,)"
                                     R"("repetition_penalty":1.5,"seed":9,"max_tokens":5,)"
                                     R"("min_tokens":2,"stop":["x","y"],"stop_token_ids":[3],)"
                                     R"("logit_bias":{"4":-100},"logprobs":2,"ignore_eos":true,)"
                                     R"("include_stop_str_in_output":true,)"
                                     R"("skip_special_tokens":false)"));
  const auto& s = job.requests[0].sampling;
  CHECK(s.temperature == 0.5f);
  CHECK(s.top_p == 0.25f);
  CHECK(s.top_k == 7);
  CHECK(s.min_p == 0.125f);
  CHECK(s.presence_penalty == -1.0f);
  CHECK(s.frequency_penalty == 2.0f);
  CHECK(s.repetition_penalty == 1.5f);
  CHECK(s.seed == 9);
  CHECK(s.max_tokens == 5);
  CHECK(s.min_tokens == 2);
  CHECK(s.stop == std::vector<std::string>{"x", "y"});
  CHECK(s.stop_token_ids == std::vector<token_id>{3});
  CHECK(s.logit_bias == std::vector<std::pair<token_id, float>>{{4, -100.0f}});
  CHECK(s.logprobs == 2);
  CHECK(s.ignore_eos);
  CHECK(s.include_stop);
  CHECK_FALSE(s.skip_special_tokens);
  CHECK(job.ignored.empty());
}

TEST_CASE("a chat keeps what the engine reads, as it was said, and loses the rest") {
  const auto job =
    read(chat, chat_body(R"("model":"tiny","n":2,"stream":true,"stream_options":)"
                         R"({"include_usage":true},"timings":true,"user":"u","temperature":0.1,)"
                         R"("top_k":-1,"stop":"x","logprobs":false,"top_logprobs":0,)"
                         R"("skip_special_tokens":false,"priority":3)"));
  CHECK(job.model == "tiny");
  CHECK(job.n == 2);
  CHECK(job.stream);
  CHECK(job.include_usage);
  CHECK(job.timings);
  const auto& request = job.requests.at(0);
  CHECK(request.sampling.n == 2);
  CHECK_FALSE(request.sampling.skip_special_tokens);
  CHECK_FALSE(request.sampling.temperature.has_value());
  CHECK(request.session == "u");
  CHECK(request.priority == 3);
  const auto sent = chat_of(job);
  CHECK(to_text(sent) == R"({"messages":[{"role":"user","content":"hi"}],"temperature":0.1,)"
                         R"("top_k":0,"stop":"x","logprobs":false})");
}

TEST_CASE("null is absent, for every field") {
  std::string all = R"("model":null)";
  for (const auto* name : {"n",
                           "stream",
                           "stream_options",
                           "timings",
                           "user",
                           "user_id",
                           "cache_salt",
                           "priority",
                           "temperature",
                           "top_p",
                           "top_k",
                           "min_p",
                           "presence_penalty",
                           "frequency_penalty",
                           "repetition_penalty",
                           "seed",
                           "max_tokens",
                           "max_completion_tokens",
                           "min_tokens",
                           "stop",
                           "stop_token_ids",
                           "logit_bias",
                           "ignore_eos",
                           "skip_special_tokens",
                           "include_stop_str_in_output",
                           "response_format",
                           "logprobs"})
    all += std::string(",\"") + name + "\":null";
  const auto as_text = read(completion, completion_body(all + R"(,"echo":null,"suffix":null,)"
                                                              R"("best_of":null)"));
  CHECK(as_text.ignored.empty());
  CHECK(same_fields(as_text.requests[0].sampling,
                    read(completion, completion_body("")).requests[0].sampling));
  const auto as_chat = read(chat, chat_body(all + R"(,"tools":null,"tool_choice":null,)"
                                                  R"("parallel_tool_calls":null,"thinking":null,)"
                                                  R"("reasoning_effort":null,"top_logprobs":null,)"
                                                  R"("continue_final_message":null)"));
  CHECK(as_chat.ignored.empty());
  CHECK(chat_of(as_chat).size() == 1);
}

TEST_CASE("out of range, of the wrong kind: refused by name") {
  for (const auto* value : {"-0.1", "2.1", "1e300", R"("1")", "true", "[]", "{}"})
    refused_by_both(std::string(R"("temperature":)") + value, "temperature");
  for (const auto* value : {"0", "1.0001", "-1", R"("NaN")"})
    refused_by_both(std::string(R"("top_p":)") + value, "top_p");
  for (const auto* value : {"-5", "1.5", "3000000000"})
    refused_by_both(std::string(R"("top_k":)") + value, "top_k");
  refused_by_both(R"("min_p":2)", "min_p");
  refused_by_both(R"("presence_penalty":2.5)", "presence_penalty");
  refused_by_both(R"("frequency_penalty":-2.5)", "frequency_penalty");
  refused_by_both(R"("repetition_penalty":0)", "repetition_penalty");
  for (const auto* value : {"-1", "9223372036854775808", "0.5", R"("7")"})
    refused_by_both(std::string(R"("seed":)") + value, "seed");
  for (const auto* value : {"0", "-1", "1.5", "1e9"})
    refused_by_both(std::string(R"("max_tokens":)") + value, "max_tokens");
  refused_by_both(R"("max_completion_tokens":0)", "max_completion_tokens");
  refused_by_both(R"("min_tokens":5,"max_tokens":4)", "min_tokens");
  for (const auto* value : {"0", "-1", "17", "1000", "1.0"})
    refused_by_both(std::string(R"("n":)") + value, "n");
  refused_by_both(R"("stop":"")", "stop");
  refused_by_both(R"("stop":["","a"])", "stop");
  refused_by_both(R"("stop":5)", "stop");
  refused_by_both(R"("stop":[1])", "stop[0]");
  refused_by_both(R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15",)"
                  R"("16","17"])",
                  "stop");
  refused_by_both(R"("stop_token_ids":[-1])", "stop_token_ids[0]");
  refused_by_both(R"("logit_bias":{"x":1})", "logit_bias");
  refused_by_both(R"("logit_bias":{"-1":1})", "logit_bias");
  refused_by_both(R"("logit_bias":{"1":101})", "logit_bias.1");
  refused_by_both(R"("cache_salt":"")", "cache_salt");
  refused_by_both(R"("stream":1)", "stream");
  refused_by_both(R"("stream_options":{"include_usage":1},"stream":true)",
                  "stream_options.include_usage");
  refused_by_both(R"("stream_options":{"include_usage":true})", "stream_options");
  refused_by_both(R"("user":1)", "user");
  for (const std::string name : {"user", "user_id"}) {
    const auto of = [&](std::size_t length) {  // characters of two bytes
      std::string out;
      for (std::size_t i = 0; i < length; ++i) out += "\u00e9";
      return "\"" + name + "\":\"" + out + "\"";
    };
    CHECK_FALSE(read(chat, chat_body(of(512))).requests.empty());
    refused_by_both(of(513), name);
  }
  refused_by_both(R"("model":1)", "model");
  refused_by_both(R"("response_format":{"type":"json_schema"})", "response_format.type");
  refused_by_both(R"("response_format":{"type":"nonsense"})", "response_format.type");
  refused_by_both(R"("response_format":{})", "response_format.type");
}

TEST_CASE("a bound that is not among the values is said so") {
  for (const auto& why : {refused(chat, chat_body(R"("top_p":0)")),
                          refused(completion, completion_body(R"("top_p":0)"))})
    CHECK(why.message == "top_p: found 0, expected a number above 0, at most 1");
}

TEST_CASE("the tiniest temperatures and probabilities are accepted") {
  for (const auto* value : {"0", "-0.0", "1e-5", "1e-40", "1e-400"})
    CHECK(read(completion, completion_body(std::string(R"("temperature":)") + value))
            .requests[0]
            .sampling.temperature.value() < 1e-4f);
  CHECK(read(completion, completion_body(R"("top_p":1e-50)")).requests[0].sampling.top_p > 0.0f);
}

TEST_CASE("what is not built is refused, not dropped") {
  CHECK(refused(completion, completion_body(R"("echo":true)")).param == "echo");
  CHECK(read(completion, completion_body(R"("echo":false,"suffix":"","best_of":1)")).n == 1);
  CHECK(refused(completion, completion_body(R"("suffix":"x")")).param == "suffix");
  CHECK(refused(completion, completion_body(R"("best_of":2)")).param == "best_of");
  CHECK(read(completion, completion_body(R"("best_of":2,"n":2)")).n == 2);
  CHECK(refused(completion, completion_body(R"("logprobs":21)")).param == "logprobs");
  CHECK(refused(completion, completion_body(R"("logprobs":true)")).param == "logprobs");
  CHECK(refused(chat, chat_body(R"("logprobs":1)")).param == "logprobs");
  CHECK(refused(chat, chat_body(R"("top_logprobs":2)")).param == "top_logprobs");
  CHECK(refused(chat, chat_body(R"("logprobs":true,"top_logprobs":21)")).param == "top_logprobs");
  CHECK(refused(chat, chat_body(R"("tool_choice":"required")")).param == "tool_choice");
  CHECK(refused(chat, chat_body(R"("tool_choice":"some")")).param == "tool_choice");
  CHECK(refused(chat, chat_body(R"("tool_choice":{"type":"function"})")).param == "tool_choice");
  CHECK(refused(chat, chat_body(R"("tool_choice":4)")).param == "tool_choice");
  CHECK(refused(chat, chat_body(R"("parallel_tool_calls":false)")).param == "parallel_tool_calls");
  CHECK(refused(chat, chat_body(R"("continue_final_message":true)")).param ==
        "continue_final_message");
  CHECK(refused(chat, chat_body(R"("include_stop_str_in_output":true)")).param ==
        "include_stop_str_in_output");
  CHECK(refused(chat, R"({})").param == "messages");
  CHECK(refused(chat, R"({"messages":"hi"})").param == "messages");
}

TEST_CASE("a constraint or a behaviour that is not there is refused, not ignored") {
  for (const auto* name : {"guided_json",
                           "json_schema",
                           "guided_regex",
                           "guided_choice",
                           "guided_grammar",
                           "structured_outputs",
                           "structural_tag",
                           "grammar",
                           "regex",
                           "ebnf",
                           "functions",
                           "function_call",
                           "use_beam_search",
                           "modalities",
                           "audio",
                           "prediction",
                           "logit_processors",
                           "logits_processors",
                           "custom_logit_processor",
                           "bad_words",
                           "allowed_token_ids",
                           "prompt_logprobs",
                           "truncate_prompt_tokens",
                           "chat_template",
                           "documents",
                           "web_search_options"}) {
    const auto key = fmt::format("\"{}\":", name);
    for (const auto* value : {R"("x")", R"({"type":"object"})", R"(["x"])", "true", "1"})
      refused_by_both(key + value, name);
    openai_limits strict;
    strict.strict_fields = true;
    for (const auto* value : {"null", "false", R"("")", "[]"}) {
      CHECK(read(chat, chat_body(key + value), strict).ignored.empty());
      CHECK(read(completion, completion_body(key + value), strict).ignored.empty());
    }
  }
  refused_by_both(R"("modalities":["text","audio"])", "modalities");
  CHECK(read(chat, chat_body(R"("modalities":["text"])")).ignored.empty());
  for (const auto* choice : {R"("auto")", R"("none")"})
    CHECK(read(chat, chat_body(std::string(R"("function_call":)") + choice)).ignored.empty());
  CHECK(read(chat, chat_body(R"("structured_outputs":{})")).ignored.empty());
  // An empty schema is one: any JSON.
  refused_by_both(R"("guided_json":{})", "guided_json");
  refused_by_both(R"("json_schema":{})", "json_schema");
  CHECK(refused(chat, chat_body(R"("guided_regex":"a+")")).message ==
        "guided_regex: is not supported yet, \"response_format\": {\"type\": \"json_object\"} is");
}

TEST_CASE("thinking is known before the engine tells") {
  CHECK_FALSE(read(chat, chat_body("")).thinking);
  CHECK(read(chat, chat_body(R"("thinking":{"type":"enabled"})")).thinking);
  CHECK(read(chat, chat_body(R"("thinking":{"type":"adaptive"})")).thinking);
  CHECK_FALSE(
    read(chat, chat_body(R"("thinking":{"type":"disabled"},"reasoning_effort":"high")")).thinking);
  CHECK(read(chat, chat_body(R"("reasoning_effort":"low")")).thinking);
  CHECK(read(chat, chat_body(R"("reasoning_effort":42)")).thinking);
  CHECK_FALSE(read(chat, chat_body(R"("reasoning_effort":"none")")).thinking);
}

TEST_CASE("a prompt ends where the answer begins, whatever its endpoint") {
  CHECK(read(chat, chat_body(R"("add_generation_prompt":true)")).ignored.empty());
  CHECK(refused(chat, chat_body(R"("add_generation_prompt":false)")).param ==
        "add_generation_prompt");
  CHECK(refused(chat, chat_body(R"("continue_final_message":true)")).param ==
        "continue_final_message");
  const auto argument = [](const std::string& text) {
    return refused(chat, chat_body(R"("chat_template_kwargs":{)" + text + "}")).param;
  };
  CHECK(argument(R"("add_generation_prompt":false)") ==
        "chat_template_kwargs.add_generation_prompt");
  CHECK(argument(R"("continue_final_message":true)") ==
        "chat_template_kwargs.continue_final_message");
}

TEST_CASE("arguments of a chat template that have a field here are taken for it") {
  const auto engine = [](const std::string& extra) {
    const auto job = read(chat, chat_body(extra));
    return std::pair(json::parse(*job.requests[0].chat).get_object(), job);
  };
  for (const auto* name : {"thinking", "enable_thinking"}) {
    const auto with = [&](const char* value, const std::string& more = "") {
      return engine(fmt::format(R"("chat_template_kwargs":{{"{}":{}}}{})", name, value, more));
    };
    const auto [on, job] = with("true");
    CHECK(on.at("thinking").at("type") == "enabled");
    CHECK(job.thinking);
    CHECK(job.ignored.empty());
    CHECK_FALSE(on.contains("chat_template_kwargs"));
    CHECK(with("false").first.at("thinking").at("type") == "disabled");
    CHECK_FALSE(with("null").first.contains("thinking"));
    // It decides over an effort, as the field does; the field decides over it.
    CHECK_FALSE(with("false", R"(,"reasoning_effort":"high")").second.thinking);
    CHECK(with("false", R"(,"thinking":{"type":"enabled"})").second.thinking);
    const auto why =
      refused(chat, chat_body(fmt::format(R"("chat_template_kwargs":{{"{}":1}})", name)));
    CHECK(why.param == fmt::format("chat_template_kwargs.{}", name));
  }
  const auto effort = R"("chat_template_kwargs":{"reasoning_effort":"max"})";
  CHECK(engine(effort).first.at("reasoning_effort") == "max");
  CHECK(engine(effort).second.thinking);
  CHECK(engine(std::string(effort) + R"(,"reasoning_effort":"low")").first.at("reasoning_effort") ==
        "low");
  CHECK(read(chat, chat_body(R"("chat_template_kwargs":{"date":"today"})")).ignored ==
        std::vector<std::string>{"chat_template_kwargs.date"});
  CHECK(refused(chat, chat_body(R"("chat_template_kwargs":[1])")).param == "chat_template_kwargs");
  const auto body =
    json::parse(R"({"messages":[],"chat_template_kwargs":{"thinking":true,"date":1}})");
  json_fields fields(body.get_object());
  std::vector<std::string> ignored;
  const auto rendered = read_chat_body(fields, ignored);
  REQUIRE(rendered);
  CHECK(ignored == std::vector<std::string>{"chat_template_kwargs.date"});
  CHECK(json::parse(*rendered).at("thinking").at("type") == "enabled");
}

TEST_CASE("fields that nobody knows are listed, or refused where that is wanted") {
  const auto body = chat_body(R"("stream":true,"stream_options":{"continuous_usage_stats":true},)"
                              R"("metadata":{},"store":true)");
  const auto job = read(chat, body);
  CHECK(job.ignored ==
        std::vector<std::string>{"stream_options.continuous_usage_stats", "metadata", "store"});
  openai_limits strict;
  strict.strict_fields = true;
  CHECK(refused(chat, body, strict).param == "stream_options.continuous_usage_stats");
  CHECK(read(chat, chat_body(""), strict).ignored.empty());
}

TEST_CASE("a body that is no JSON is refused with its place") {
  auto why = refused(completion, "{\"prompt\":\"\xc4\xe3\"}");
  CHECK(why.code == errc::invalid_utf8);
  CHECK(why.message.find("byte 11") != std::string::npos);
  why = refused(completion, "{\"prompt\":\n nope}");
  CHECK(why.code == errc::invalid_json);
  CHECK(why.message.find("line 2") != std::string::npos);
  for (const auto* body : {"", "{", R"({"prompt":"a"} x)", R"({"temperature":NaN})",
                           R"({"prompt":"a","temperature":1e999})"})
    CHECK(refused(completion, body).code == errc::invalid_json);
  for (const auto* body : {"[]", "5", "null", "\"a\""})
    CHECK(refused(completion, body).code == errc::invalid_argument);
  openai_limits shallow;
  shallow.max_depth = 4;
  CHECK(refused(completion, R"({"prompt":"a","x":[[[[[[]]]]]]})", shallow).code ==
        errc::json_too_deep);
}

TEST_CASE("a message quotes at most 200 characters of what was sent") {
  const std::string long_text(100'000, 'x');
  for (const auto& body : {completion_body(R"("temperature":")" + long_text + "\""),
                           completion_body("\"stop\":[{\"" + long_text + "\":1}]"),
                           completion_body("\"logit_bias\":{\"" + long_text + "\":1}")})
    CHECK(refused(completion, body).message.size() < 400);
}

TEST_CASE("lengths are bounded by the context of what is served, and by nothing else") {
  model_info served;
  served.names = {"tiny"};
  served.max_model_len = 2048;
  for (const std::string name : {"max_tokens", "max_completion_tokens", "min_tokens"}) {
    for (const auto* tokens : {"2049", "1000000000", "3000000000", "9223372036854775807"}) {
      const auto field = "\"" + name + "\":" + tokens;
      CAPTURE(field);
      for (const auto& job :
           {read(chat, chat_body(field)), read(completion, completion_body(field))}) {
        const auto fits = check_served(job, served);
        REQUIRE_FALSE(fits);
        CHECK(fits.error().code == errc::context_length_exceeded);
        CHECK(fits.error().param == name);
        CHECK(fits.error().message == name + ": found " + tokens +
                                        ", expected at most 2048, the context length of the served "
                                        "model (max_model_len)");
      }
    }
    CHECK(check_served(read(chat, chat_body("\"" + name + "\":2048")), served));
    CHECK(check_served(read(completion, completion_body("\"" + name + "\":2048")), served));
  }
  const auto one = refused(completion, completion_body(R"("max_tokens":1e9)"));
  CHECK(one.message.find("a whole number, at least 1") != std::string::npos);
  CHECK(refused(chat, chat_body(R"("min_tokens":-1)")).message.find("at least 0") !=
        std::string::npos);
}

TEST_CASE("names and ids are checked against what is served") {
  model_info served;
  served.names = {"tiny", "other"};
  served.vocab_size = 100;
  CHECK(check_served(read(chat, chat_body("")), served).has_value());
  CHECK(check_served(read(chat, chat_body(R"("model":"other")")), served).has_value());
  const auto unknown = check_served(read(chat, chat_body(R"("model":"nope")")), served);
  REQUIRE_FALSE(unknown.has_value());
  CHECK(unknown.error().code == errc::model_not_found);
  CHECK(unknown.error().message.find("tiny, other") != std::string::npos);
  CHECK(check_served(read(completion, R"({"prompt":[99]})"), served).has_value());
  const auto beyond = check_served(read(completion, R"({"prompt":[[1],[5,100]]})"), served);
  REQUIRE_FALSE(beyond.has_value());
  CHECK(beyond.error().message == "prompt[1][1]: found 100, expected 0 to 99");
}
