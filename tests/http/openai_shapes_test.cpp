#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "runtime/http/error_envelope.hpp"
#include "runtime/http/json_text.hpp"
#include "runtime/http/openai_shapes.hpp"
#include "tests/http/api_fixture.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

openai_frame chat_frame() {
  openai_frame frame;
  frame.id = "chatcmpl-1";
  frame.created = 7;
  frame.model = "tiny";
  frame.fingerprint = "fp";
  return frame;
}

openai_frame completion_frame() {
  auto frame = chat_frame();
  frame.endpoint = openai_endpoint::completion;
  frame.id = "cmpl-1";
  return frame;
}

std::string added(openai_stream& stream, const token_chunk& chunk, std::int32_t index = 0) {
  std::string out;
  stream.add(chunk, index, out);
  return out;
}

token_logprobs logprobs_of(std::vector<std::string> texts, std::vector<float> values) {
  token_logprobs out;
  for (std::size_t i = 0; i < texts.size(); ++i) out.ids.push_back(static_cast<token_id>(i));
  out.texts = std::move(texts);
  out.logprobs = std::move(values);
  return out;
}

constexpr std::string_view head =
  R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"tiny",)"
  R"("system_fingerprint":"fp","choices":[)";

std::string chunk_text(const std::string& choice) {
  return std::string(head) + choice + "]}\n\n";
}

}  // namespace

TEST_CASE("a chat stream begins with the role and ends with the finish, then [DONE]") {
  openai_stream stream(chat_frame(), 1);
  std::string out;
  stream.begin(out);
  CHECK(out == chunk_text(R"({"index":0,"delta":{"role":"assistant","content":""},)"
                          R"("logprobs":null,"finish_reason":null})"));
  CHECK(added(stream, text_chunk("Hi")) ==
        chunk_text(R"({"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null})"));
  auto last = final_chunk(finish_reason::stop);
  last.text = "!";
  CHECK(added(stream, last) ==
        chunk_text(R"({"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":null})") +
          chunk_text(R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"})"));
  out.clear();
  stream.end(out);
  CHECK(out == "data: [DONE]\n\n");
}

TEST_CASE("a chunk that shows nothing is no event") {
  openai_stream stream(chat_frame(), 1);
  CHECK(added(stream, text_chunk("")).empty());
}

TEST_CASE("thinking begins with no content and goes through reasoning_content") {
  auto frame = chat_frame();
  frame.thinking = true;
  openai_stream stream(frame, 1);
  std::string out;
  stream.begin(out);
  CHECK(out.find(R"("delta":{"role":"assistant","content":null,"reasoning_content":""})") !=
        std::string::npos);
  token_chunk chunk;
  chunk.reasoning_text = "so";
  CHECK(added(stream, chunk).find(R"("delta":{"reasoning_content":"so"})") != std::string::npos);
  chunk.text = "a";
  CHECK(added(stream, chunk).find(R"("delta":{"reasoning_content":"so","content":"a"})") !=
        std::string::npos);
}

TEST_CASE("calls of tools stream their id and name once, arguments in pieces") {
  openai_stream stream(chat_frame(), 1);
  token_chunk chunk;
  chunk.tool_calls = {{1, "call_01", "f", ""}, {1, "", "", "{\"a\": "}};
  CHECK(added(stream, chunk)
          .find(R"("delta":{"tool_calls":[{"index":1,"id":"call_01","type":"function",)"
                R"("function":{"name":"f","arguments":""}},{"index":1,"function":)"
                R"({"arguments":"{\"a\": "}}]})") != std::string::npos);
}

TEST_CASE("usage comes last in a stream that asks for it, each prompt once") {
  auto frame = chat_frame();
  frame.include_usage = true;
  frame.n = 2;
  openai_stream stream(frame, 4);
  for (std::int32_t i = 0; i < 4; ++i) {
    const auto text = added(stream, final_chunk(finish_reason::length), i);
    CHECK(text.find(R"("finish_reason":"length"}],"usage":null})") != std::string::npos);
  }
  std::string out;
  stream.end(out);
  CHECK(out.find(R"("choices":[],"usage":{"prompt_tokens":20,"completion_tokens":12,)"
                 R"("total_tokens":32,"prompt_tokens_details":{"cached_tokens":8},)"
                 R"("completion_tokens_details":{"reasoning_tokens":4},)"
                 R"("prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":12}})") !=
        std::string::npos);
  CHECK(out.ends_with("data: [DONE]\n\n"));
}

TEST_CASE("timings come with the finish where asked for") {
  auto frame = chat_frame();
  frame.timings = true;
  openai_stream stream(frame, 1);
  auto last = final_chunk(finish_reason::stop);
  last.finish->seed = 17;
  const auto text = added(stream, last);
  CHECK(text.find(
          R"("timings":{"queued_ms":1.000,"prefill_ms":2.000,"ttft_ms":3.000,)"
          R"("decode_ms":4.000,"decode_tokens_per_second":500.00,"preemptions":0,"seed":17}})") !=
        std::string::npos);
}

TEST_CASE("logprobs of a chat have the token, its bytes and the best ones") {
  auto frame = chat_frame();
  frame.logprobs = true;
  openai_stream stream(frame, 1);
  auto chunk = text_chunk("");
  chunk.logprobs = {
    logprobs_of({"\xE2\x82", "a"}, {-std::numeric_limits<float>::infinity(), -0.5f})};
  CHECK(added(stream, chunk)
          .find("\"delta\":{},\"logprobs\":{\"content\":[{\"token\":\"\xEF\xBF\xBD\","
                "\"logprob\":-9999,\"bytes\":[226,130],\"top_logprobs\":[{\"token\":\"a\","
                "\"logprob\":-0.5,\"bytes\":[97]}]}],\"refusal\":null}") != std::string::npos);
}

TEST_CASE("logprobs of a completion have offsets that go on from chunk to chunk") {
  auto frame = completion_frame();
  frame.logprobs = true;
  openai_stream stream(frame, 1);
  openai_answers whole(frame, 1);
  auto first = text_chunk("\xC3\xA9t");
  first.logprobs = {logprobs_of({"\xC3\xA9", "\xC3\xA9", "x"}, {-1, -1, -2}),
                    logprobs_of({"t", "u"}, {-3, -1})};
  auto second = text_chunk("e");
  second.logprobs = {logprobs_of({"\xE2", "e"}, {-4, -0.25f})};
  CHECK(added(stream, first)
          .find("\"text\":\"\xC3\xA9t\",\"logprobs\":{\"tokens\":[\"\xC3\xA9\",\"t\"],"
                "\"token_logprobs\":[-1,-3],\"top_logprobs\":[{\"\xC3\xA9\":-1,\"x\":-2},"
                "{\"u\":-1,\"t\":-3}],\"text_offset\":[0,1]}") != std::string::npos);
  CHECK(added(stream, second)
          .find(R"("logprobs":{"tokens":["bytes:\\xe2"],"token_logprobs":[-4],"top_logprobs":)"
                R"([{"e":-0.25,"bytes:\\xe2":-4}],"text_offset":[2]})") != std::string::npos);
  whole.add(first, 0);
  whole.add(second, 0);
  CHECK(whole.text().find(R"("text_offset":[0,1,2]})") != std::string::npos);
}

TEST_CASE("a completion stream has texts in place of deltas") {
  openai_stream stream(completion_frame(), 1);
  std::string out;
  stream.begin(out);
  CHECK(out.empty());
  CHECK(added(stream, text_chunk("a")) ==
        R"(data: {"id":"cmpl-1","object":"text_completion","created":7,"model":"tiny",)"
        R"("system_fingerprint":"fp","choices":[{"index":0,"text":"a","logprobs":null,)"
        R"("finish_reason":null}]})"
        "\n\n");
}

TEST_CASE("a whole chat answer has everything in one object") {
  auto frame = chat_frame();
  frame.thinking = true;
  frame.timings = true;
  openai_answers answers(frame, 1);
  token_chunk chunk;
  chunk.reasoning_text = "so";
  answers.add(chunk, 0);
  answers.add(text_chunk("a\"\n"), 0);
  token_chunk call;
  call.tool_calls = {{0, "call_00", "f", ""}, {0, "", "", "{}"}, {1, "call_01", "g", "[]"}};
  answers.add(call, 0);
  answers.add(final_chunk(finish_reason::tool_calls), 0);
  const auto read = parse_json(answers.text()).value();
  const auto& choice = read.at("choices").at(0);
  CHECK(to_text(choice.at("message")) ==
        R"({"role":"assistant","content":"a\"\n","reasoning_content":"so","tool_calls":[)"
        R"({"index":0,"id":"call_00","type":"function","function":{"name":"f","arguments":"{}"}},)"
        R"({"index":1,"id":"call_01","type":"function","function":{"name":"g",)"
        R"("arguments":"[]"}}]})");
  CHECK(choice.at("finish_reason") == "tool_calls");
  CHECK(read.at("object") == "chat.completion");
  CHECK(read.at("usage").at("total_tokens") == 13);
  CHECK(read.at("timings").as_object().size() == 7);
  CHECK(read.at("timings").at("seed") == 0);
}

TEST_CASE("prompts of one request that have each their own seed are told them all") {
  auto frame = completion_frame();
  frame.timings = true;
  frame.n = 2;
  std::uint64_t second = 5;
  std::string expected = R"("seed":5})";
  SUBCASE("given for all") {}
  SUBCASE("drawn for each") {
    second = 6;
    expected = R"("seeds":[5,6]})";
  }
  openai_answers answers(frame, 4);
  for (const std::int32_t i : {3, 0, 2, 1}) {
    auto last = final_chunk(finish_reason::stop);
    last.finish->seed = i < 2 ? 5 : second;
    answers.add(last, i);
  }
  CHECK(answers.text().find(expected) != std::string::npos);
}

TEST_CASE("answers of several prompts keep their order whatever the order of their chunks") {
  auto frame = completion_frame();
  frame.n = 2;
  openai_answers answers(frame, 4);
  for (std::int32_t i : {3, 0, 2, 1}) answers.add(text_chunk(std::to_string(i)), i);
  for (std::int32_t i : {1, 0, 3, 2}) answers.add(final_chunk(finish_reason::stop), i);
  const auto read = parse_json(answers.text()).value();
  for (std::int64_t i = 0; i < 4; ++i) {
    const auto& choice = read.at("choices").as_array()[static_cast<std::size_t>(i)];
    CHECK(choice.at("index") == i);
    CHECK(std::string(choice.at("text").as_string()) == std::to_string(i));
  }
  CHECK(read.at("usage").at("prompt_tokens") == 20);
  CHECK(read.at("usage").at("completion_tokens") == 12);
}

TEST_CASE("how an answer ended is a word, or an error") {
  sequence_finish it;
  it.usage.completion_tokens = 1;
  for (const auto& [reason, word] :
       {std::pair{finish_reason::stop, "stop"}, std::pair{finish_reason::length, "length"},
        std::pair{finish_reason::tool_calls, "tool_calls"},
        std::pair{finish_reason::resource, "insufficient_system_resource"}}) {
    it.reason = reason;
    CHECK(finish_error(it).has_value());
    CHECK(finish_word(it) == word);
  }
  it.usage.completion_tokens = 0;
  CHECK(finish_error(it).error().code == errc::no_blocks);
  it.reason = finish_reason::abort;
  CHECK(finish_error(it).error().code == errc::cancelled);
  it.reason = finish_reason::error;
  it.code = errc::rank_lost;
  it.message = "rank 0 died";
  CHECK(finish_error(it).error().code == errc::rank_lost);
  CHECK(finish_error(it).error().message == "rank 0 died");
}

TEST_CASE("JSON strings repair what is no UTF-8 by maximal parts") {
  const auto repaired = [](std::string_view text) {
    std::string out;
    append_json_string(out, text);
    return out.substr(1, out.size() - 2);
  };
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(repaired("\xED\xA0\x80") == bad + bad + bad);
  CHECK(repaired("\xE2\x80"
                 "A") == bad + "A");
  CHECK(repaired("\xF0\x80\x80"
                 "A") == bad + bad + bad + "A");
  CHECK(repaired("\xF0\x9F\x98\x80") == "\xF0\x9F\x98\x80");
  CHECK(repaired("\xF4\x90\x80\x80") == bad + bad + bad + bad);
  CHECK(repaired("\xF0\x9F\x98") == bad);
  CHECK(repaired(std::string_view("\0\x1f\n\"\\", 5)) == R"(\u0000\u001f\n\"\\)");
  CHECK(utf8_defect("a\xC3\xA9") == std::nullopt);
  CHECK(utf8_defect("a\xC3") == 1);
}

TEST_CASE("every error has the envelope, the status of its code, and at most 4 KB") {
  for (int i = 1; i <= static_cast<int>(errc::io_failed); ++i) {
    const auto code = static_cast<errc>(i);
    const error why{code, std::string(100'000, '"') + "\n", std::string(9'000, '\xFF')};
    const auto answer = error_response(why);
    CHECK(answer.status == http_status_of(code));
    CHECK(answer.body.size() <= 4096);
    const auto read = parse_json(answer.body).value();
    const auto& it = read.at("error").as_object();
    CHECK(it.size() == 4);
    CHECK(std::string(it.at("code").as_string()) == name_of(code));
    CHECK(it.at("type").is_string());
  }
  CHECK(
    parse_json(error_json({errc::internal, "x", {}})).value().at("error").at("param").is_null());
}

TEST_CASE("what may be tried again says when, what cannot improve says no") {
  const auto header = [](errc code, std::string_view name) -> std::string {
    for (const auto& it : error_response({code, "x", {}}).headers)
      if (it.name == name) return it.value;
    return "";
  };
  for (const auto code : {errc::queue_full, errc::rate_limited, errc::draining, errc::not_ready,
                          errc::overloaded, errc::rank_lost, errc::server_shutdown}) {
    CHECK(std::stoi(header(code, "Retry-After")) > 0);
    CHECK(header(code, "x-should-retry") == "true");
  }
  for (const auto code : {errc::invalid_argument, errc::unauthenticated, errc::model_not_found}) {
    CHECK(header(code, "Retry-After").empty());
    CHECK(header(code, "x-should-retry") == "false");
  }
}
