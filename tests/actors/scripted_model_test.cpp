// A model whose answers a file gives: what the file may say, and what clients of a node then get.
#include <doctest/doctest.h>

#include <filesystem>

#include <fmt/format.h>

#include "actors/scripted_model.hpp"
#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "runtime/base/utf8.hpp"
#include "runtime/device/device.hpp"
#include "tests/actors/read_answer.hpp"

using namespace deepinfer;
using namespace std::chrono_literals;

namespace {

constexpr auto patience = 60s;
const std::string model_path = std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41";

const tokenizer& words() {
  static const auto opened = tokenizer::open(model_path).value();
  return opened;
}

/// A file that is gone when the test ends.
class script_file {
public:
  explicit script_file(std::string_view text)
    : path_(std::filesystem::temp_directory_path() /
            fmt::format("deepinfer-script-{}.json", static_cast<const void*>(this))) {
    REQUIRE(write_file(path_, text).has_value());
  }
  ~script_file() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

private:
  std::string path_;
};

std::unique_ptr<node> start(const std::string& script, engine_settings settings = {}) {
  const script_file file(script);
  settings.model.script = file.path();
  auto model = load_script(settings, model_path);
  REQUIRE_MESSAGE(model.has_value(), model.error().message);
  return node::start(settings, std::move(model->machines), std::move(model->facts));
}

generate_request plain(std::string text, std::int32_t max_tokens = 64) {
  generate_request request;
  request.text = std::move(text);
  request.sampling.max_tokens = max_tokens;
  request.sampling.seed = 1;
  return request;
}

generate_request chat(const std::string& json) {
  generate_request request;
  request.chat = json;
  return request;
}

generate_result answer(const node& engine, const generate_request& request) {
  auto chunks = engine.connect().generate(request);
  REQUIRE_MESSAGE(chunks.has_value(), chunks.error().message);
  return test::read_answer(*chunks, patience);
}

std::string defect_of(std::string_view script) {
  const auto parsed = answer_script::parse(script, words());
  REQUIRE(!parsed.has_value());
  return parsed.error().message;
}

}  // namespace

TEST_CASE("the first answer whose words are in the prompt is given, and it stops there") {
  const auto engine = start(R"({"answers": [
    {"when": "weather", "say": "It rains."},
    {"when": "the", "say": "Second."}], "otherwise": {"say": "Neither."}})");
  const auto rain = answer(*engine, plain("How is the weather?"));
  CHECK(rain.text == "It rains.");
  CHECK(rain.finish.reason == finish_reason::stop);
  CHECK(rain.finish.usage.completion_tokens ==
        static_cast<std::int32_t>(words().encode("It rains.", specials::off).size()) + 1);
  CHECK(answer(*engine, plain("Is the sun out?")).text == "Second.");
  CHECK(answer(*engine, plain("Nothing")).text == "Neither.");
}

TEST_CASE("a scripted chat answer is parsed into reasoning, content and calls") {
  const auto engine = start(
    R"({"answers": [{"when": "Berlin", "say":
    "I look.</think>One moment.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke )"
    R"(name=\"weather\">\n<｜DSML｜ parameter name=\"city\" string=\"true\">)"
    R"(Berlin</｜DSML｜ parameter>\n)"
    R"(</｜DSML｜ invoke>\n</｜DSML｜ calls>"}]})");
  const auto got = answer(*engine, chat(R"({"messages": [{"role": "user", "content": "Berlin?"}],
    "thinking": {"type": "enabled"}, "max_tokens": 400, "tools": [{"type": "function", "function":
    {"name": "weather", "parameters": {"type": "object"}}}]})"));
  CHECK(got.reasoning_text == "I look.");
  CHECK(got.text == "One moment.");
  REQUIRE(got.tool_calls.size() == 1);
  CHECK(got.tool_calls[0].name == "weather");
  CHECK(parse_json(got.tool_calls[0].arguments).value() == parse_json(R"({"city":"Berlin"})"));
  CHECK(got.finish.reason == finish_reason::tool_calls);
}

TEST_CASE("an answer that goes on is plain words up to the limit, the same for the same request") {
  const auto engine = start(R"({"otherwise": {"say": "Once", "then": "go on"}})");
  const auto first = answer(*engine, plain("a", 200));
  CHECK(first.finish.reason == finish_reason::length);
  CHECK(first.ids.size() == 200);
  CHECK(first.text.rfind("Once", 0) == 0);
  for (const char c : first.text) CHECK((c >= ' ' && c <= '~'));
  CHECK(answer(*engine, plain("a", 200)).text == first.text);
  CHECK(answer(*engine, plain("b", 200)).text != first.text);
  auto warm = plain("a", 200);
  warm.sampling.temperature = 1.0f;
  warm.sampling.seed = 7;
  const auto with_seven = answer(*engine, warm).text;
  warm.sampling.seed = 8;
  CHECK(answer(*engine, warm).text != with_seven);
}

TEST_CASE("ids are given as they are, and any id may follow; text stays whole UTF-8") {
  const auto engine = start(R"({"answers": [
    {"when": "ids", "ids": [5, 17, 4]}, {"when": "any", "then": "any"}]})");
  const auto given = answer(*engine, plain("ids"));
  CHECK(given.ids == std::vector<token_id>{5, 17, 4, 1});
  auto request = plain("any", 600);
  request.sampling.skip_special_tokens = false;
  const auto any = answer(*engine, request);
  CHECK(any.ids.size() == 600);
  CHECK(is_utf8(any.text));
}

TEST_CASE("ids that end a sequence come no earlier than min_tokens, and not with ignore_eos") {
  const auto engine = start(R"({"otherwise": {"say": "No."}})");
  auto request = plain("a", 64);
  request.sampling.min_tokens = 20;
  const auto late = answer(*engine, request);
  CHECK(late.finish.reason == finish_reason::stop);
  CHECK(late.ids.size() == 21);
  request.sampling.min_tokens = 0;
  request.sampling.ignore_eos = true;
  const auto on = answer(*engine, request);
  CHECK(on.finish.reason == finish_reason::length);
  CHECK(on.ids.size() == 64);
}

TEST_CASE("answers are the same with drafts, in a batch, from the prefix cache and at any depth") {
  const std::string script = R"({"otherwise": {"say": "Well:", "then": "go on"}})";
  std::string prompt;
  for (int i = 0; i < 60; ++i) prompt += "word ";
  std::string wanted;
  for (const auto depth : {1, 2, 3})
    for (const auto drafts : {0, 3}) {
      CAPTURE(depth);
      CAPTURE(drafts);
      engine_settings settings;
      settings.engine.depth = depth;
      settings.engine.num_drafts = drafts;
      settings.engine.block_size = 8;
      const auto engine = start(script, settings);
      const auto client = engine->connect();
      std::vector<stream> open;
      for (int i = 0; i < 4; ++i) open.push_back(client.generate(plain(prompt, 50)).value());
      for (auto& one : open) {
        const auto got = test::read_answer(one, patience);
        if (wanted.empty()) wanted = got.text;
        CHECK(got.text == wanted);
      }
      const auto again = answer(*engine, plain(prompt, 50));
      CHECK(again.text == wanted);
      CHECK(again.finish.usage.cached_tokens > 0);
    }
}

TEST_CASE("under json_object a script's ids give way to those that JSON allows") {
  const auto engine = start(R"({"answers": [{"when": "good", "say": "{\"a\": 1}"}],
                                "otherwise": {"say": "no JSON"}})");
  auto request = plain("good", 40);
  request.sampling.grammar = "json_object";
  CHECK(answer(*engine, request).text == R"({"a": 1})");
  request.text = "bad";
  CHECK(answer(*engine, request).text.rfind("{", 0) == 0);
}

TEST_CASE("the time of a step and of a first step is the device's") {
  const auto engine = start(R"({"step_ms": 2, "otherwise": {"say": "a b c", "first_ms": 30}})");
  CHECK(answer(*engine, plain("x")).text == "a b c");
  // "a b c" and its end are at least four steps; the newest may not be counted yet.
  const auto stats = engine->connect().stats().value();
  CHECK(stats.device_busy_ns >= 30'000'000 + 3 * 2'000'000);
}

TEST_CASE("errors of a script name answer and key") {
  CHECK(defect_of("[]") == "script: expected an object");
  CHECK(defect_of(R"({"answer": []})") ==
        "answer: found an unknown key, expected step_ms, answers or otherwise");
  CHECK(defect_of(R"({"step_ms": -1})") ==
        "step_ms: found -1, expected milliseconds, 0 to 3600000");
  CHECK(defect_of(R"({"answers": {}})") == "answers: found {}, expected a list");
  CHECK(defect_of(R"({"answers": [{}, 5]})") == "answers[1]: found 5, expected an object");
  CHECK(defect_of(R"({"answers": [{"say": "a", "ids": [1]}]})") ==
        "answers[0]: found say and ids, expected one of them");
  CHECK(defect_of(R"({"answers": [{"ids": [3, 99999]}]})").find("answers[0].ids[1]: found 99999") ==
        0);
  CHECK(defect_of(R"({"answers": [{"then": "halt"}]})") ==
        "answers[0].then: found halt, expected stop, go on or any");
  CHECK(defect_of(R"({"otherwise": {"when": "x"}})") ==
        "otherwise.when: found an unknown key, expected say, ids, then or first_ms");
  CHECK(defect_of(R"({"step_ms": 1,})").find("line 1") != std::string::npos);
}

TEST_CASE("a script that cannot be read names its file") {
  engine_settings settings;
  settings.model.script = "/no/such/script.json";
  const auto missing = load_script(settings, model_path);
  REQUIRE(!missing.has_value());
  CHECK(missing.error().message.find("/no/such/script.json") != std::string::npos);
  const script_file file(R"({"otherwise": 1})");
  settings.model.script = file.path();
  const auto wrong = load_script(settings, model_path);
  REQUIRE(!wrong.has_value());
  CHECK(wrong.error().code == errc::bad_config);
  CHECK(wrong.error().message.find(file.path()) != std::string::npos);
}
