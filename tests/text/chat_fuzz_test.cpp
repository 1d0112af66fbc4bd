// Hostile requests and outputs: nothing crashes, hangs or leaks, whatever comes.
#include <doctest/doctest.h>

#include <algorithm>

#include "runtime/base/utf8.hpp"
#include "runtime/text/chat_commands.hpp"
#include "runtime/text/output_parser.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/mutate.hpp"
#include "tests/text/chat_fixtures.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

const std::size_t mutants = with_effort<std::size_t>(20000);

/// Chat Completions bodies of both chat fixtures, one text each.
std::vector<std::string> valid_bodies() {
  std::vector<std::string> bodies;
  for (const char* file : {"chat_v41.jsonl", "chat_v4.jsonl"})
    for (const auto& record : chat_records(file)) {
      if (text_of(record, "via") != "chat_completions") continue;
      json::object body{{"model", record.at("model")}, {"messages", record.at("messages")}};
      if (!record.at("tools").is_null()) body["tools"] = record.at("tools");
      for (const auto& [key, value] : record.at("options").as_object()) body[key] = value;
      bodies.push_back(json::serialize(body));
    }
  return bodies;
}

/// Special ranges rise, do not overlap and lie within the prompt.
bool is_sound(const rendered_prompt& prompt) {
  std::size_t last = 0;
  for (const auto& range : prompt.special) {
    if (range.begin < last || range.end <= range.begin) return false;
    last = range.end;
  }
  return last <= prompt.text.size() && is_utf8(prompt.text);
}

parsed_output sum_of(const output_deltas& deltas) {
  parsed_output output;
  for (const auto& delta : deltas) output.add(delta);
  return output;
}

/// Every call but the last was closed by what followed it, and so was that where `is_done`.
bool closed_calls_parse(const parsed_output& output, bool is_done) {
  const auto closed = output.calls.size() - (output.calls.empty() || is_done ? 0 : 1);
  return std::all_of(output.calls.begin(), output.calls.begin() + static_cast<long>(closed),
                     [](const auto& call) { return parse_json(call.arguments, 512).has_value(); });
}

bool same(const parsed_output& a, const parsed_output& b) {
  return a.reasoning == b.reasoning && a.content == b.content && a.calls == b.calls;
}

}  // namespace

TEST_CASE("20,000 mutants of valid chat requests give a sound prompt or an error with a message") {
  const auto bodies = valid_bodies();
  REQUIRE(bodies.size() > 150);
  mutator mutate(20260731);
  std::size_t is_json = 0;
  std::size_t accepted = 0;
  for (std::size_t i = 0; i < mutants; ++i) {
    const auto mutant = mutate.text(bodies[i % bodies.size()]);
    const auto read = parse_chat_request(mutant);
    if (!read) {
      const auto code = read.error().code;
      const bool at_parse =
        code == errc::invalid_json || code == errc::json_too_deep || code == errc::invalid_utf8;
      is_json += at_parse ? 0U : 1U;
      if (read.error().message.empty() || read.error().message.size() > 1500)
        FAIL("mutant " << i << ": message of " << read.error().message.size() << " bytes");
      continue;
    }
    ++is_json;
    ++accepted;
    if (!is_sound(render_chat(read->conversation, read->variant)))
      FAIL("mutant " << i << " gives an unsound prompt: " << mutant);
  }
  CHECK(is_json >= mutants / 5);
  CHECK(accepted >= mutants / 20);
}

TEST_CASE("20,000 mutants of valid outputs parse the same whole and in pieces, in valid UTF-8") {
  std::vector<std::string> texts;
  for (const auto& record : chat_records("parse_output.jsonl"))
    if (record.get_object().contains("text")) texts.push_back(text_of(record, "text"));
  REQUIRE(texts.size() == 83);
  constexpr std::string_view pieces[] = {"</think>",
                                         "｜DSML｜",
                                         "<｜DSML｜ calls>\n",
                                         "</｜DSML｜ calls>",
                                         "<｜DSML｜ invoke name=\"",
                                         "\">",
                                         "</｜DSML｜ invoke>",
                                         "<｜DSML｜ parameter name=\"k\" string=\"true\">",
                                         "string=\"",
                                         "<｜DSML｜ parameter name=\"n\" string=\"false\">",
                                         "</｜DSML｜ parameter>",
                                         "\n",
                                         "<",
                                         "</",
                                         "{",
                                         "```json\n",
                                         "\n```",
                                         "END"};
  mutator mutate(42);
  std::size_t with_calls = 0;
  for (std::size_t i = 0; i < mutants; ++i) {
    auto text = mutate.text(texts[i % texts.size()]);
    for (auto more = mutate.below(3); more > 0; --more) {
      const auto at = mutate.below(text.size() + 1);
      text.insert(at, pieces[mutate.below(std::size(pieces))]);
    }
    output_mode mode;
    mode.start = static_cast<parse_start>(mutate.below(5));
    mode.parse_tool_calls = !mutate.once_in(4);
    mode.json_output = mutate.once_in(8);
    if (mutate.once_in(4)) mode.stop = {"END", "e\n", "<"};
    output_parser whole(mode);
    output_parser cut(mode);
    output_deltas at_once;
    output_deltas in_pieces;
    whole.feed(text, at_once);
    whole.finish(at_once);
    for (std::size_t at = 0; at < text.size();) {
      const auto size = 1 + mutate.below(7);
      cut.feed(std::string_view(text).substr(at, size), in_pieces);
      at += size;
    }
    cut.finish(in_pieces);
    const auto output = sum_of(at_once);
    if (!same(output, sum_of(in_pieces)))
      FAIL("mutant " << i << " depends on its chunks: " << text);
    for (const auto& delta : in_pieces)
      if (!is_utf8(delta.text)) FAIL("mutant " << i << " tells half a character");
    if (!closed_calls_parse(output, whole.ended() && !whole.stopped()))
      FAIL("mutant " << i << " gives arguments that are no JSON: " << text);
    with_calls += output.calls.empty() ? 0U : 1U;
  }
  CHECK(with_calls >= mutants / 5);  // behind the first marker
}

TEST_CASE("20,000 mutants of render and parse commands give an object or an error") {
  std::vector<std::string> lines;
  for (const char* file : {"chat_v41.jsonl", "parse_output.jsonl"})
    for (auto record : chat_records(file)) {
      for (const char* key : {"prompt", "special_ranges", "cuts", "progress", "expect"})
        record.as_object().erase(key);
      lines.push_back(json::serialize(record));
    }
  mutator mutate(7);
  std::size_t is_json = 0;
  std::size_t answered = 0;
  for (std::size_t i = 0; i < mutants; ++i) {
    const auto parsed = parse_json(mutate.text(lines[i % lines.size()]), 128);
    if (!parsed) continue;
    ++is_json;
    const auto rendered = render_command(*parsed, nullptr);
    const auto output = parse_command(*parsed, nullptr);
    answered += rendered || output ? 1U : 0U;
    if (!rendered) CHECK(error_object(rendered.error()).contains("error"));
  }
  CHECK(is_json >= mutants / 5);
  CHECK(answered >= mutants / 20);
}
