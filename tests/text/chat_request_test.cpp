// What a chat request may say: every error of the fixtures, every near miss, and our own rules.
#include <doctest/doctest.h>

#include <fmt/format.h>

#include "runtime/base/utf8.hpp"
#include "runtime/text/chat_commands.hpp"
#include "runtime/text/chat_request.hpp"
#include "tests/text/chat_fixtures.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

std::string unhex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

/// The body of an errors.jsonl record, as bytes.
std::string body_of(const json::object& record) {
  if (const auto* raw = record.if_contains("raw_hex")) return unhex(raw->as_string());
  if (const auto* repeat = record.if_contains("raw_repeat")) {
    std::string body;
    for (std::int64_t i = 0; i < repeat->at(1).as_int64(); ++i) body += repeat->at(0).as_string();
    return body;
  }
  return json::serialize(record.at("request"));
}

/// A body of one user message and `more`, which begins with a comma.
result<chat_request> with(const std::string& more) {
  return parse_chat_request(
    R"({"model": "DeepSeek-V4.1-Flash", "messages": [{"role": "user", "content": "x"}])" + more +
    "}");
}

}  // namespace

TEST_CASE("every bad request of the fixtures is refused with its field, every near miss is read") {
  const auto records = chat_records("errors.jsonl");
  REQUIRE(records.size() == 104);
  for (const auto& record : records) {
    const auto id = text_of(record, "id");
    CAPTURE(id);
    const auto read = parse_chat_request(body_of(record.get_object()));
    if (id == "effort-int") {  // 1 to 100 is an extension of ours
      CHECK(read);
      continue;
    }
    CHECK(read.has_value() == record.at("expect").at("ok").as_bool());
    if (read) continue;
    const auto& failure = read.error();
    CHECK(http_status_of(failure.code) / 100 == 4);
    CHECK(failure.message.size() < 1000);
    const auto* stage = record.at("expect").get_object().if_contains("stage");
    const bool is_json = stage && *stage == "json";
    const bool names_a_field = !failure.param.empty() || id == "spec-top-level-array";
    CHECK(is_json == (failure.code == errc::invalid_json));
    if (!is_json) CHECK(names_a_field);
  }
}

TEST_CASE("an error names the field by its path, what was found and what was expected") {
  struct error_case {
    const char* more;
    const char* param;
    const char* message;
  };
  const error_case table[] = {
    {R"(, "temperature": 2.5)", "temperature",
     "temperature: found 2.5, expected a number from 0 to 2"},
    {R"(, "tools": [{"type": "function", "function": {"name": "a b"}}])", "tools[0].function.name",
     "tools[0].function.name: found \"a b\", expected 1 to 128 characters of a-z, A-Z, 0-9, _ "
     "and -"},
    {R"(, "stop": ["a", 1])", "stop[1]", "stop[1]: found 1, expected a string"},
    {R"(, "thinking": {"type": "auto"})", "thinking.type",
     "thinking.type: found \"auto\", expected adaptive, enabled or disabled"},
    {R"(, "stop_token_ids": 7)", "stop_token_ids",
     "stop_token_ids: found 7, expected a list of token ids"},
    {R"(, "stop_token_ids": [7, 4294967296])", "stop_token_ids[1]",
     "stop_token_ids[1]: found 4294967296, expected a token id from 0"},
    {R"(, "logit_bias": {"x": 1})", "logit_bias.\"x\"",
     "logit_bias.\"x\": expected a token id as key"},
    {R"(, "response_format": {"type": "json_schema", "json_schema": {}})",
     "response_format.json_schema.schema", "response_format.json_schema.schema: is missing"},
    {R"(, "tools": [{"type": "function", "function": {"name": "f", "parameters":
        {"type": "object", "properties": {"a": {"type": "banana"}}}}}])",
     "tools[0].function.parameters",
     "tools[0].function.parameters: schema.properties.a.type: found \"banana\", expected a JSON "
     "type or a list of them"},
  };
  for (const auto& row : table) {
    CAPTURE(row.more);
    const auto read = with(row.more);
    REQUIRE_FALSE(read);
    CHECK(read.error().param == row.param);
    CHECK(read.error().message == row.message);
  }
}

TEST_CASE("what is not UTF-8 is named by its byte, what is nested too deep by its depth") {
  const auto bad = parse_chat_request("{\"prompt\":\"\xc4\xe3\"}");
  REQUIRE_FALSE(bad);
  CHECK(bad.error().code == errc::invalid_utf8);
  CHECK(bad.error().message == "the request body is not UTF-8 at byte 11");
  const auto deep = parse_chat_request(std::string(100000, '['));
  REQUIRE_FALSE(deep);
  CHECK(deep.error().code == errc::json_too_deep);
}

TEST_CASE("an error never echoes a large body") {
  const std::string huge(1 << 20, 'x');
  const auto model = parse_chat_request(R"({"messages": [], "model": ")" + huge + "\"}");
  REQUIRE_FALSE(model);
  CHECK(model.error().message.size() < 300);
  const auto key = with(", \"logit_bias\": {\"" + huge + "\": 1}");
  REQUIRE_FALSE(key);
  CHECK(key.error().message.size() < 500);
  const auto tool = R"({"type": "function", "function": {"name": "f", "parameters": {"type": ")" +
                    std::string(98, 'x') + "é" + huge + "\"}}}";
  const auto schema = with(", \"tools\": [" + tool + "]");
  REQUIRE_FALSE(schema);
  CHECK(schema.error().message.size() < 300);
  CHECK(is_utf8(schema.error().message));
  const auto line = error_object(error{errc::invalid_argument, huge, "p"});
  CHECK(line.at("error").at("message").as_string().size() <= 4096);
}

TEST_CASE("null counts as absent in every optional field") {
  const auto read = with(
    R"(, "temperature": null, "top_p": null, "top_k": null, "min_p": null, "seed": null, "n": null,
       "max_tokens": null, "max_completion_tokens": null, "stop": null, "logprobs": null,
       "tools": null, "top_logprobs": null, "tool_choice": null, "response_format": null,
       "thinking": null,
       "reasoning_effort": null, "stream": null, "stream_options": null, "logit_bias": null,
       "stop_token_ids": null, "min_tokens": null, "ignore_eos": null, "presence_penalty": null)");
  REQUIRE_MESSAGE(read, read.error().message);
  CHECK(read->conversation.thinking);
  CHECK_FALSE(read->sampling.temperature.has_value());
}

TEST_CASE("our own fields are read within their ranges and refused outside") {
  const auto read = with(
    R"(, "top_k": 5, "min_p": 0.25, "repetition_penalty": 1.5, "min_tokens": 2, "ignore_eos": true,
       "stop_token_ids": [7, 9], "logit_bias": {"12": -100}, "reasoning_effort": 42)");
  REQUIRE_MESSAGE(read, read.error().message);
  const auto& s = read->sampling;
  CHECK(s.top_k == 5);
  CHECK(s.min_p == 0.25);
  CHECK(s.repetition_penalty == 1.5);
  CHECK(s.min_tokens == 2);
  CHECK(s.ignore_eos);
  CHECK(s.stop_token_ids == std::vector<token_id>{7, 9});
  REQUIRE(s.logit_bias.size() == 1);
  CHECK(s.logit_bias[0] == std::pair<token_id, float>{12, -100.0f});
  CHECK(read->conversation.effort_number == 42);
  for (const char* bad :
       {R"(, "top_k": -5)", R"(, "min_p": 2)", R"(, "repetition_penalty": 0)",
        R"(, "top_p": 1.0001)", R"(, "logit_bias": {"x": 1})", R"(, "logit_bias": {"1": 101})",
        R"(, "stop_token_ids": [-1])", R"(, "stop_token_ids": [1.5])",
        R"(, "stop_token_ids": [4294967296])", R"(, "ignore_eos": 1)", R"(, "reasoning_effort": 0)",
        R"(, "reasoning_effort": 101)", R"(, "max_completion_tokens": 0)",
        R"(, "max_tokens": 393217)", R"(, "n": 0)", R"(, "n": 1000)", R"(, "top_logprobs": 3)",
        R"(, "stream_options": {"include_usage": true})", R"(, "stop": ["1","2","3","4","5","6","7",
        "8","9","10","11","12","13","14","15","16","17"])"}) {
    CAPTURE(bad);
    const auto refused = with(bad);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::invalid_argument);
  }
}

TEST_CASE("arguments of a chat template say how to think, where the body itself does not") {
  struct thinking_case {
    const char* more;
    bool thinking;
    effort_level effort = effort_level::high;
  };
  const thinking_case table[] = {
    {R"(, "chat_template_kwargs": {"thinking": false})", false},
    {R"(, "chat_template_kwargs": {"enable_thinking": false})", false},
    {R"(, "chat_template_kwargs": {"thinking": true, "date": "today"})", true},
    {R"(, "chat_template_kwargs": {"enable_thinking": null})", true},
    {R"(, "chat_template_kwargs": null)", true},
    {R"(, "chat_template_kwargs": {"reasoning_effort": "max"})", true, effort_level::max},
    {R"(, "chat_template_kwargs": {"reasoning_effort": "none"})", false},
    // The body's own field wins over an argument,
    {R"(, "chat_template_kwargs": {"thinking": false}, "thinking": {"type": "enabled"})", true},
    {R"(, "chat_template_kwargs": {"thinking": true}, "thinking": {"type": "disabled"})", false},
    {R"(, "chat_template_kwargs": {"reasoning_effort": "max"}, "reasoning_effort": "low")", true,
     effort_level::low},
    // and a word about thinking over an effort, wherever they are.
    {R"(, "chat_template_kwargs": {"thinking": false, "reasoning_effort": "low"})", false,
     effort_level::low},
    {R"(, "chat_template_kwargs": {"thinking": false}, "reasoning_effort": "max")", false,
     effort_level::max},
    {R"(, "chat_template_kwargs": {"reasoning_effort": "none"}, "thinking": {"type": "enabled"})",
     true},
  };
  for (const auto& row : table) {
    CAPTURE(row.more);
    const auto read = with(row.more);
    REQUIRE_MESSAGE(read, read.error().message);
    CHECK(read->conversation.thinking == row.thinking);
    CHECK(read->conversation.effort == row.effort);
  }
  const std::pair<const char*, const char*> refused[] = {
    {R"(, "chat_template_kwargs": [1])", "chat_template_kwargs"},
    {R"(, "chat_template_kwargs": {"thinking": 1})", "chat_template_kwargs.thinking"},
    {R"(, "chat_template_kwargs": {"enable_thinking": "no"})",
     "chat_template_kwargs.enable_thinking"},
    {R"(, "chat_template_kwargs": {"reasoning_effort": "some"})",
     "chat_template_kwargs.reasoning_effort"},
    {R"(, "chat_template_kwargs": {}, "reasoning_effort": "some")", "reasoning_effort"},
  };
  for (const auto& [more, param] : refused) {
    CAPTURE(more);
    const auto read = with(more);
    REQUIRE_FALSE(read);
    CHECK(read.error().param == param);
  }
}

TEST_CASE("an unknown model is refused with the names that are served") {
  chat_request_options options;
  options.models = {{"tiny", chat_variant::v41}, {"other", chat_variant::v4}};
  const std::string messages = R"("messages": [{"role": "user", "content": "x"}])";
  const auto read = parse_chat_request(R"({"model": "nope", )" + messages + "}", options);
  REQUIRE_FALSE(read);
  CHECK(read.error().code == errc::model_not_found);
  CHECK(read.error().message.find("tiny, other") != std::string::npos);
  const auto other = parse_chat_request(R"({"model": "other", )" + messages + "}", options);
  REQUIRE(other);
  CHECK(other->variant == chat_variant::v4);
}

TEST_CASE("strict closes every object of a schema and keeps what it does not know") {
  const auto read = with(
    R"(, "thinking": {"type": "disabled"}, "response_format": {"type": "json_schema", "json_schema":
       {"strict": true, "schema": {"type": "object", "title": "t", "required": ["b", "a"],
       "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/n"}},
       "b": {"anyOf": [{"type": "null"},
       {"type": "object", "properties": {"z": {"type": "number"}}}]}},
       "$defs": {"n": {"type": "object", "properties": {"k": {"type": "string"}}}}}}})");
  REQUIRE_MESSAGE(read, read.error().message);
  CHECK(read->constraint.kind == constraint_kind::json);
  CHECK(read->constraint.schema ==
        R"({"type": "object", "title": "t", "properties": {"a": {"type": "array", "items": )"
        R"({"$ref": "#/$defs/n"}}, "b": {"anyOf": [{"type": "null"}, {"type": "object", )"
        R"("properties": {"z": {"type": "number"}}, "additionalProperties": false, "required": )"
        R"(["z"]}]}}, "$defs": {"n": {"type": "object", "properties": {"k": {"type": "string"}}, )"
        R"("additionalProperties": false, "required": ["k"]}}, "additionalProperties": false, )"
        R"("required": ["a", "b"]})");
}

TEST_CASE("what cannot be served together is refused, with the field that is too much") {
  const std::string tool = R"({"type": "function", "function": {"name": ")";
  const std::string f = tool + R"(f"}})";
  const std::string strict = tool + R"(g", "strict": true}})";
  const std::string json_format = R"(, "response_format": {"type": "json_schema", "json_schema":
    {"schema": {"type": "object"}}})";
  CHECK(with(", \"tools\": [" + f + "]" + json_format));
  const auto mixed = with(", \"tools\": [" + f + ", " + strict + "]");
  REQUIRE_FALSE(mixed);
  CHECK(mixed.error().param == "tools");
  CHECK(with(", \"tool_choice\": \"none\", \"tools\": [" + f + ", " + strict + "]"));
  const auto held = with(", \"tools\": [" + strict + "]" + json_format);
  REQUIRE_FALSE(held);
  CHECK(held.error().param == "response_format");
  const auto prefixed = parse_chat_request(
    R"({"model": "DeepSeek-V4.1-Flash", "messages": [{"role": "user", "content": "x"},
      {"role": "assistant", "content": "y", "prefix": true}], "tools": [)" +
    f + "]}");
  REQUIRE_FALSE(prefixed);
  CHECK(prefixed.error().param == "tools");
}

TEST_CASE("an empty system message leaves no trace, in the middle, at the end or alone") {
  const auto roles_of = [](const std::string& messages) {
    const auto read =
      parse_chat_request(R"({"model": "DeepSeek-V4.1-Flash", "messages": [)" + messages + "]}");
    REQUIRE_MESSAGE(read, read.error().message);
    return read->conversation.messages.size();
  };
  const std::string user = R"({"role": "user", "content": "u"})";
  const std::string system = R"({"role": "system", "content": ""})";
  CHECK(roles_of(user + "," + system + "," + user) == 2);
  CHECK(roles_of(user + "," + system) == 1);
  CHECK(roles_of(system) == 0);
}
