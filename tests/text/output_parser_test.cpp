// The output parser against DeepSeek's own: every record, however it is cut; and what must hold for
// any output at all.
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/base/utf8.hpp"
#include "runtime/text/chat_commands.hpp"
#include "runtime/text/output_parser.hpp"
#include "runtime/text/python_json.hpp"
#include "tests/text/chat_fixtures.hpp"
#include "tests/text/output_runs.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

output_mode mode_of(const json::value& record) {
  const auto& mode = record.at("mode").as_object();
  output_mode read;
  for (const auto start :
       {parse_start::reasoning, parse_start::reasoning_continuation,
        parse_start::content_continuation, parse_start::content, parse_start::tool_calls})
    if (mode.at("start").as_string() == name_of(start)) read.start = start;
  read.parse_tool_calls = mode.at("tools").as_bool();
  if (const auto* flag = mode.if_contains("json")) read.json_output = flag->as_bool();
  if (const auto* stops = mode.if_contains("stop"))
    for (const auto& stop : stops->as_array()) read.stop.emplace_back(stop.as_string());
  return read;
}

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \n");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \n") + 1 - begin);
}

/// What an output adds up to, as the fixtures spell it.
json::object object_of(const parsed_output& output, const std::string& finish, bool strip) {
  json::array calls;
  for (const auto& call : output.calls)
    calls.push_back(json::value{{"name", call.name}, {"arguments", call.arguments}});
  return {{"reasoning", output.reasoning},
          {"content", strip ? trimmed(output.content) : output.content},
          {"tool_calls", calls},
          {"finish_reason", finish}};
}

/// [reasoning bytes, content bytes, calls, argument bytes]
std::array<std::size_t, 4> progress_of(const parsed_output& output) {
  std::size_t arguments = 0;
  for (const auto& call : output.calls) arguments += call.arguments.size();
  return {output.reasoning.size(), output.content.size(), output.calls.size(), arguments};
}

/// The arguments of one fixture are no JSON. Theirs stay so, ours are made to be.
constexpr std::string_view bad_json = "bad-json-t";
constexpr std::string_view bad_json_arguments = R"({"a": "{oops", "port": "x"})";

/// Ours against the reference's, which ends where a stop string matches. What may wait longest is
/// the start of arguments: they are told when the tag of their first parameter is whole, and one
/// that is no string when it is whole itself, which has at most 16 bytes here.
void check_progress(const std::vector<parsed_output>& steps, const json::array& reference) {
  constexpr std::array<std::size_t, 4> most_held{12, 12, 1, 12 + 16};
  REQUIRE(reference.size() <= steps.size());
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const auto ours = progress_of(steps[i]);
    for (std::size_t k = 0; k < 4; ++k)
      CHECK(ours[k] + most_held[k] >= reference[i].at(k).to_number<std::size_t>());
  }
  const auto last = progress_of(steps.back());
  for (std::size_t k = 0; k < 4; ++k)
    CHECK(last[k] == reference[reference.size() - 1].at(k).to_number<std::size_t>());
}

/// Ends of the chunks that a fixture's offsets make.
std::vector<std::size_t> ends_of(const json::value& offsets, std::size_t size) {
  std::vector<std::size_t> ends;
  for (const auto& offset : offsets.as_array()) ends.push_back(offset.to_number<std::size_t>());
  if (ends.empty() || ends.back() != size) ends.push_back(size);
  return ends;
}

}  // namespace

TEST_CASE(
  "every output of the fixtures is split as DeepSeek splits it, markers spelled or as tokens") {
  const auto records = chat_records("parse_output.jsonl");
  REQUIRE(records.size() == 107);
  std::size_t with_ids = 0;
  for (const auto& record : records) {
    CAPTURE(text_of(record, "id"));
    const bool is_ids = record.get_object().contains("ids");
    const auto* words = is_ids ? released_tokenizer() : nullptr;
    if (is_ids && !words) continue;
    with_ids += is_ids ? 1U : 0U;
    auto parsed = parse_command(record, words);
    REQUIRE_MESSAGE(parsed, parsed.error().message);
    auto expected = record.at("expect").as_object();
    if (text_of(record, "compare") == "strip") {
      expected["content"] = trimmed(std::string(expected["content"].as_string()));
      (*parsed)["content"] = trimmed(text_of(*parsed, "content"));
    }
    if (text_of(record, "id") == bad_json)
      expected["tool_calls"].at(0).as_object()["arguments"] = bad_json_arguments;
    CHECK(json::serialize(*parsed) == json::serialize(expected));
  }
  if (released_tokenizer()) CHECK(with_ids == 24);
}

TEST_CASE("an output is the same in any chunks, and no chunk tells what is not in the result") {
  for (const auto& record : chat_records("parse_output.jsonl")) {
    if (record.get_object().contains("ids")) continue;
    CAPTURE(text_of(record, "id"));
    const auto text = text_of(record, "text");
    const auto mode = mode_of(record);
    const auto whole = run_text(mode, text, {text.size()});
    std::vector<std::vector<std::size_t>> cuttings{every_byte(text.size())};
    for (const auto& [name, offsets] : record.at("cuts").as_object())
      cuttings.push_back(ends_of(offsets, text.size()));
    for (const auto& ends : cuttings) {
      const auto cut = run_text(mode, text, ends);
      CHECK(json::serialize(object_of(cut.output, "", false)) ==
            json::serialize(object_of(whole.output, "", false)));
      CHECK(cut.whole_characters);
      for (const auto& step : cut.steps) CHECK(begins_with(whole.output, step));
    }
  }
}

TEST_CASE("text is told as early as DeepSeek tells it, but for what a marker may need") {
  for (const auto& record : chat_records("parse_output.jsonl")) {
    if (record.get_object().contains("ids")) continue;
    if (text_of(record, "compare") == "strip") continue;  // blanks are counted differently
    if (text_of(record, "id") == bad_json) continue;
    CAPTURE(text_of(record, "id"));
    const auto text = text_of(record, "text");
    for (const auto& [name, list] : record.at("progress").as_object()) {
      const auto* cuts = record.at("cuts").get_object().if_contains(name);
      const auto done =
        run_text(mode_of(record), text, ends_of(cuts ? *cuts : json::array{}, text.size()));
      check_progress(done.steps, list.as_array());
    }
  }
}

TEST_CASE("token ids may come in any pieces, and a half character waits for its rest") {
  const auto* words = released_tokenizer();
  if (!words) return;
  for (const auto& record : chat_records("parse_output.jsonl")) {
    const auto* ids = record.get_object().if_contains("ids");
    if (!ids) continue;
    CAPTURE(text_of(record, "id"));
    token_output_parser parser(mode_of(record), *words);
    parsed_output output;
    std::vector<parsed_output> steps;
    const auto take = [&](const output_deltas& deltas) {
      for (const auto& delta : deltas) {
        CHECK(is_utf8(delta.text));
        output.add(delta);
      }
      steps.push_back(output);
    };
    for (const auto& id : ids->as_array()) {
      output_deltas deltas;
      parser.feed(id.to_number<token_id>(), deltas);
      take(deltas);
    }
    output_deltas deltas;
    parser.finish(deltas);
    take(deltas);
    CHECK(output.content == text_of(record.at("expect"), "content"));
    CHECK(output.reasoning == text_of(record.at("expect"), "reasoning"));
    for (const auto& step : steps) CHECK(begins_with(output, step));
    check_progress(steps, record.at("progress").at("ids").as_array());
  }
}

TEST_CASE(
  "content is told before a marker is possible: the first letters do not wait for the last") {
  output_parser parser({parse_start::content, true, false, {}});
  output_deltas deltas;
  parser.feed("Hello\n\n<", deltas);
  REQUIRE(deltas.size() == 1);
  CHECK(deltas[0].text == "Hello");
  deltas.clear();
  parser.feed("b", deltas);
  REQUIRE(deltas.size() == 1);
  CHECK(deltas[0].text == "\n\n<b");
}

TEST_CASE("an answer in chat mode or in thought keeps what only looks like a marker") {
  CHECK(parse_whole("a ｜DSML｜ b </｜DSML｜ calls> c").content ==
        "a ｜DSML｜ b </｜DSML｜ calls> c");
  CHECK(parse_whole("a\n<\n<｜DSML｜ calls>").content == "a\n<");
  CHECK(parse_whole("<<｜DSML｜ calls>").content == "<");
  const auto thought = parse_whole("r</｜DSML｜ calls></think>c", parse_start::reasoning);
  CHECK(thought.reasoning == "r</｜DSML｜ calls>");
  CHECK(thought.content == "c");
}

TEST_CASE("line breaks are dropped at the edges of thoughts and before a calls block only") {
  struct edge_case {
    const char* text;
    parse_start start;
    const char* reasoning;
    const char* content;
  };
  const edge_case table[] = {
    {"\n\nr\n\n</think>\n\nc\n", parse_start::reasoning, "r", "c\n"},
    {"\n r \n\n", parse_start::reasoning, " r \n\n", ""},
    {"\nr\n</think>\nc", parse_start::reasoning_continuation, "\nr", "c"},
    {"\nc</think>\nd", parse_start::content_continuation, "", "\nc\nd"},
    {"\n\n</think>\n\nd", parse_start::content, "", "\n\nd"},
    {"c\n</think>d", parse_start::content, "", "c\nd"},
    {"c \n\n\n<｜DSML｜ calls>", parse_start::content, "", "c "},
    {"r\n\n<｜DSML｜ calls>", parse_start::reasoning, "r", ""},
  };
  for (const auto& row : table) {
    CAPTURE(row.text);
    const auto output = parse_whole(row.text, row.start);
    CHECK(output.reasoning == row.reasoning);
    CHECK(output.content == row.content);
  }
}

TEST_CASE("a stop string cuts the content in any chunks, and none of it is told") {
  struct stop_case {
    const char* text;
    std::vector<std::string> stops;
    const char* content;
    bool stopped;
  };
  const stop_case table[] = {
    {"brown fox jumps", {"own fox"}, "br", true},
    {"hello there", {"there", "lo t"}, "hel", true},
    {"ababc", {"abc", "b"}, "a", true},
    {"aaab", {"aab"}, "a", true},
    {"abcd", {"cd", "bcd"}, "ab", true},
    {"abcd", {"bcd", "cd"}, "a", true},
    {"x EN", {"END"}, "x EN", false},
    {"\n\nx", {"\n"}, "", true},
    {"x\n\ny", {"\n\n"}, "x", true},
    {"aEN</think>Dx", {"END"}, "aENDx", false},
    {"😁😀x", {"😀"}, "😁", true},
    {"x\n\n<｜DSML｜ calls>", {"<"}, "x\n\n", true},
    {"abababac", {"ababac"}, "ab", true},
  };
  for (const auto& row : table) {
    CAPTURE(row.text);
    const std::string text = row.text;
    for (const bool tools : {false, true}) {
      const output_mode mode{parse_start::content, tools, false, row.stops};
      for (const auto& ends : {std::vector<std::size_t>{text.size()}, every_byte(text.size())}) {
        const auto done = run_text(mode, text, ends);
        CHECK(done.output.content == row.content);
        for (const auto& step : done.steps) CHECK(begins_with(done.output, step));
      }
      output_parser parser(mode);
      output_deltas deltas;
      parser.feed(text, deltas);
      parser.finish(deltas);
      CHECK(parser.stopped() == row.stopped);
      CHECK(parser.finish_of(finish_reason::length) ==
            (row.stopped ? finish_reason::stop : finish_reason::length));
    }
  }
}

TEST_CASE("JSON mode keeps the JSON and makes one blank of any text around it, in any chunks") {
  const std::pair<std::string, std::string> table[] = {
    {"Here: {\"a\":1} bye", " {\"a\":1} bye"},
    {"```json\n{\"a\":1}\n``` more", "{\"a\":1} "},
    {"```\n[1]\n```", "[1]"},
    {"x [1,2] y", " [1,2] y"},
    {"nothing here", " "},
    {"```json{\"a\":1}", " {\"a\":1}"},
    {"````json\n{\"a\":1}\n", " {\"a\":1}\n"},
    {"a ```json", " "},
    {"```json\n{\"a\":1}\n``", "{\"a\":1}\n``"},
    {"\n\n{\"a\":1}</think>x", "{\"a\":1}</think>x"},
    {"x</think>{\"a\":1}", " {\"a\":1}"},
  };
  for (const auto& [text, content] : table) {
    CAPTURE(text);
    const output_mode mode{parse_start::content, false, true, {}};
    CHECK(run_text(mode, text, {text.size()}).output.content == content);
    CHECK(run_text(mode, text, every_byte(text.size())).output.content == content);
  }
}

TEST_CASE("bytes that are not UTF-8 become U+FFFD, the same in any chunks") {
  const std::string text = "a\xed\xa0\x80 \xe2\x80\x41\xf0\x9f\x98";
  const std::string repaired = "a\uFFFD\uFFFD\uFFFD \uFFFDA\uFFFD";
  const output_mode mode{parse_start::content, true, false, {}};
  for (const auto& ends : {std::vector<std::size_t>{text.size()}, every_byte(text.size())}) {
    const auto done = run_text(mode, text, ends);
    CHECK(done.output.content == repaired);
    CHECK(done.whole_characters);
  }
}

TEST_CASE("a mode or a field the parse command does not know is refused by name") {
  const std::pair<const char*, const char*> table[] = {
    {R"({"text": "x"})", "mode"},
    {R"({"mode": {"start": "dreaming"}, "text": "x"})", "mode.start"},
    {R"({"mode": {"start": "content", "stop": [""]}, "text": "x"})", "mode.stop"},
    {R"({"mode": {"start": "content", "stop_in_reasoning": 1}, "text": "x"})",
     "mode.stop_in_reasoning"},
    {R"({"mode": {"start": "content"}})", "text"},
    {R"({"mode": {"start": "content"}, "ids": [1]})", "ids"},
  };
  for (const auto& [text, param] : table) {
    CAPTURE(text);
    const auto parsed = parse_command(parse_json(text).value(), nullptr);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().param == param);
  }
}

TEST_CASE("letters that began like a marker are text once a token comes between") {
  output_parser parser({parse_start::reasoning, true, false, {}});
  output_deltas deltas;
  parser.feed("r</thi", deltas);
  parser.feed_think_end(deltas);
  parser.feed("c｜DS", deltas);
  parser.feed_plain("ML｜", deltas);
  parser.finish(deltas);
  parsed_output output;
  for (const auto& delta : deltas) output.add(delta);
  CHECK(output.reasoning == "r</thi");
  CHECK(output.content == "c｜DSML｜");
}
