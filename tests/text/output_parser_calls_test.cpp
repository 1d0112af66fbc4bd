// Tool calls of an answer: whatever the model writes, a call that was closed has arguments that
// parse, and what is no call is not lost.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/base/json.hpp"
#include "runtime/text/output_parser.hpp"
#include "tests/text/output_runs.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

const std::string f = "<｜DSML｜ invoke name=\"f\">\n";
const std::string a = "<｜DSML｜ parameter name=\"a\" string=\"true\">";
const std::string end_a = "</｜DSML｜ parameter>\n";
const std::string end_f = "</｜DSML｜ invoke>\n";

/// A parameter `name` whose value is not a string.
std::string json_parameter(const std::string& name, const std::string& value) {
  return "<｜DSML｜ parameter name=\"" + name + "\" string=\"false\">" + value + end_a;
}

/// The same whole and byte by byte, no byte of it taken back.
parsed_output parse_both_ways(const std::string& text, parse_start start = parse_start::content) {
  const output_mode mode{start, true, false, {}};
  const auto whole = run_text(mode, text, {text.size()}).output;
  const auto cut = run_text(mode, text, every_byte(text.size()));
  CHECK(cut.output.reasoning == whole.reasoning);
  CHECK(cut.output.content == whole.content);
  CHECK(cut.output.calls == whole.calls);
  for (const auto& step : cut.steps) CHECK(begins_with(whole, step));
  return whole;
}

finish_reason finish_of(const std::string& text, finish_reason reported) {
  output_parser parser({parse_start::content, true, false, {}});
  output_deltas deltas;
  parser.feed(text, deltas);
  parser.finish(deltas);
  return parser.finish_of(reported);
}

}  // namespace

TEST_CASE("the name of a call is told once, before its arguments, and calls are numbered from 0") {
  output_parser parser({parse_start::content, true, false, {}});
  output_deltas deltas;
  parser.feed("<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"k\" "
              "string=\"true\">ab",
              deltas);
  REQUIRE(deltas.size() == 2);
  CHECK(deltas[0].what == output_delta::part::call_begin);
  CHECK(deltas[0].text == "f");
  CHECK(deltas[0].call == 0);
  CHECK(deltas[1].text == "{\"k\": \"ab");
  deltas.clear();
  parser.feed("</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"g\">\n", deltas);
  REQUIRE(deltas.size() == 2);
  CHECK(deltas[0].text == "\"}");
  CHECK(deltas[1].what == output_delta::part::call_begin);
  CHECK(deltas[1].call == 1);
  CHECK_FALSE(parser.ended());
  parser.feed("</｜DSML｜ invoke>\n</｜DSML｜ calls>", deltas);
  CHECK(parser.ended());
}

TEST_CASE("malformed calls give what can be saved, and no tag reaches the client") {
  struct malformed_case {
    std::string inside;
    std::vector<parsed_call> calls;
  };
  const malformed_case table[] = {
    {"", {}},
    {"text " + f + "text" + a + "v" + end_a + "text" + end_f + "text", {{"f", R"({"a": "v"})"}}},
    {f + a + "v" + end_a + f + a + "w" + end_a + end_f,  // the first invoke is not closed
     {{"f", R"({"a": "v"})"}, {"f", R"({"a": "w"})"}}},
    {f + a + "v\n" + end_f, {{"f", R"({"a": "v\n"})"}}},  // the parameter is not closed
    {f + a + "v" + end_a + "<｜DSML｜ invoke name=\"\">\n" + a + "w" + end_a + end_f,
     {{"f", R"({"a": "v"})"}}},  // not one of the call before
    {f + "<｜DSML｜ parameter name=\"a\">v" + end_a + end_f, {{"f", R"({"a": "v"})"}}},
    {f + "<｜DSML｜ parameter name=\"a\" string=\"maybe\">v" + end_a + end_f, {{"f", "{}"}}},
    {f + "<｜DSML｜ parameter name=\"a>b\" string=\"false\">1" + end_a + end_f,
     {{"f", R"({"a>b": 1})"}}},
    {f + "<｜DSML｜ parameter name=\"a\"b\\c\" string=\"false\">1" + end_a + end_f,
     {{"f", R"({"a\"b\\c": 1})"}}},
    {f + "<｜DSML｜ parameter name=\"a\n" + a + "v" + end_a + end_f, {{"f", R"({"a": "v"})"}}},
    {f + "<｜DSML｜ parameter na<" + "｜DSML｜ parameter name=\"a\" string=\"true\">v" + end_a +
       end_f,
     {{"f", R"({"a": "v"})"}}},
    {f + a + "x｜DSML｜y<｜DSML｜ calls><z</w" + end_a + end_f,
     {{"f", R"({"a": "x｜DSML｜y<｜DSML｜ calls><z</w"})"}}},
    {f + a + "x</think>y" + end_a + end_f, {{"f", R"({"a": "x</think>y"})"}}},
    {"<｜DSML｜ foo>x</｜DSML｜ foo>" + f + end_f, {{"f", "{}"}}},
    {f + "<｜DSML｜ parameter name=\"" + std::string(20000, 'k') + "\" string=\"true\">v" + end_a +
       end_f,
     {{"f", "{}"}}},
  };
  for (const auto& row : table) {
    CAPTURE(row.inside.substr(0, 300));
    const auto output = parse_both_ways("Yes.\n\n" + dsml_block(row.inside) + "more");
    CHECK(output.content == "Yes.");
    CHECK(output.calls == row.calls);
  }
}

TEST_CASE("a call makes the answer end with tool_calls only where the sampler just stopped") {
  output_parser parser({parse_start::tool_calls, true, false, {}});
  output_deltas deltas;
  parser.feed("<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>", deltas);
  parser.finish(deltas);
  CHECK(parser.finish_of(finish_reason::stop) == finish_reason::tool_calls);
  CHECK(parser.finish_of(finish_reason::length) == finish_reason::length);
  CHECK(parser.finish_of(finish_reason::abort) == finish_reason::abort);
}

TEST_CASE("a value that is no JSON becomes a string, so that the arguments of a call parse") {
  const std::pair<std::string, std::string> table[] = {
    {"", R"("")"},
    {"3", "3"},
    {" [1, {\"x\": null}]\n", " [1, {\"x\": null}]\n"},
    {"{bad \"json\"}", R"("{bad \"json\"}")"},
    {"{\"a\": 1", R"("{\"a\": 1")"},
    {"1 2", R"("1 2")"},
    {"NaN", R"("NaN")"},
    {"True", R"("True")"},
    {"1e999", R"("1e999")"},  // no number that anybody can hold
    {"Berlin < Rome </b>", R"("Berlin < Rome </b>")"},
    {std::string(200, '['), '"' + std::string(200, '[') + '"'},
    {std::string(200, '[') + std::string(200, ']'),
     '"' + std::string(200, '[') + std::string(200, ']') + '"'},
  };
  for (const auto& [value, told] : table) {
    CAPTURE(value);
    const auto output =
      parse_both_ways(dsml_block(f + json_parameter("k", value) + a + "v" + end_a + end_f));
    REQUIRE(output.calls.size() == 1);
    CHECK(output.calls[0].arguments == "{\"k\": " + told + R"(, "a": "v"})");
    CHECK(parse_json(output.calls[0].arguments));
    // The same where the closers of the parameter and of the invoke are missing.
    const auto open =
      parse_both_ways(dsml_block(f + "<｜DSML｜ parameter name=\"k\" string=\"false\">" + value));
    REQUIRE(open.calls.size() == 1);
    CHECK(open.calls[0].arguments == "{\"k\": " + told + "}");
  }
}

TEST_CASE("an attribute may lack its quotes, or have others") {
  const std::pair<const char*, const char*> table[] = {
    {"name=get_weather", "name=city string=true"},
    {"name='get_weather'", "name='city' string='true'"},
    {"name=\"get_weather\"", "name=\"city\" string=true"},
    {"name=\"get_weather\"", "string=\"true\" name=\"city\""},
    {"name=get_weather", "name=city"},
  };
  for (const auto& [invoke, parameter] : table) {
    CAPTURE(parameter);
    const auto text = "<｜DSML｜ invoke " + std::string(invoke) + ">\n<｜DSML｜ parameter " +
                      parameter + ">Ny Hamn" + end_a + end_f;
    const auto output = parse_both_ways(dsml_block(text));
    REQUIRE(output.calls.size() == 1);
    CHECK(output.calls[0].name == "get_weather");
    CHECK(output.calls[0].arguments == R"({"city": "Ny Hamn"})");
  }
  for (const auto* parameter : {"name=n string=false", "string=\"false\" name=\"n\""}) {
    CAPTURE(parameter);
    const auto text = f + "<｜DSML｜ parameter " + parameter + ">3" + end_a + end_f;
    CHECK(parse_both_ways(dsml_block(text)).calls == std::vector<parsed_call>{{"f", "{\"n\": 3}"}});
  }
}

TEST_CASE("a block without a call is text, and what follows it is, too") {
  const std::string blocks[] = {
    dsml_block("<｜DSML｜ invoke>\n" + a + "v" + end_a + end_f),
    dsml_block("<｜DSML｜ invoke name=\"\">\n" + a + "v" + end_a + end_f),
    dsml_block("<｜DSML｜ invoke name=\"f\n" + a + "v" + end_a + end_f),
    dsml_block("f(1)\n"),
    dsml_block("<｜DSML｜ foo>"),
    dsml_block("a</think>b"),
    "<｜DSML｜ foo>",
    "<｜DSML｜ calls\n>",
  };
  for (const auto& block : blocks) {
    CAPTURE(block);
    for (const auto* behind : {"", " more", "\n\n"}) {
      const auto text = "Yes.\n\n" + block + behind;
      CHECK(parse_both_ways(text).content == text);
      CHECK(parse_both_ways(block + behind).content == block + behind);
      CHECK(parse_both_ways(text, parse_start::content_continuation).content == text);
      CHECK(finish_of(text, finish_reason::stop) == finish_reason::stop);
    }
    if (!block.ends_with("calls>")) continue;
    const auto then = parse_both_ways("Yes.\n\n" + block + "\n\n" + dsml_block(f + end_f));
    CHECK(then.content == "Yes.\n\n" + block);
    CHECK(then.calls == std::vector<parsed_call>{{"f", "{}"}});
  }
  // Of a block that is only begun, half a tag is dropped, and the text before it is not.
  CHECK(parse_both_ways("Yes.\n\n<｜DSML｜ calls>\nf(1)\n<｜DSML｜ inv").content ==
        "Yes.\n\n<｜DSML｜ calls>\nf(1)\n");
  for (const auto* begun : {"<｜DSML｜ ca", "<｜DSML｜ calls>\n", "<｜DSML｜ calls>\n<｜DSML｜ inv",
                            "<｜DSML｜ calls>\n<", "<｜DSML｜ calls>\n</｜DSML｜ calls>\nmore"})
    CHECK(parse_both_ways(std::string("Yes.\n\n") + begun).content == "Yes.");
}

TEST_CASE("a block without a call stays in the part it is in, which its stop strings end") {
  const auto block = dsml_block("END (1)\n");
  const auto thought = parse_both_ways("r\n\n" + block + "s\n</think>c", parse_start::reasoning);
  CHECK(thought.reasoning == "r\n\n" + block + "s");
  CHECK(thought.content == "c");
  CHECK(parse_both_ways("\nf(1)\n</｜DSML｜ calls>c", parse_start::tool_calls).content ==
        "f(1)\n</｜DSML｜ calls>c");

  const output_mode mode{parse_start::content, true, false, {"END"}};
  const auto text = "Yes.\n\n" + block + "more";
  for (const auto& ends : {std::vector<std::size_t>{text.size()}, every_byte(text.size())})
    CHECK(run_text(mode, text, ends).output.content == "Yes.\n\n<｜DSML｜ calls>\n");
  output_parser parser(mode);
  output_deltas deltas;
  parser.feed(text, deltas);
  parser.finish(deltas);
  CHECK(parser.stopped());
  CHECK(parser.decided() == 4);  // what is before the block for certain
}

TEST_CASE("a call that is cut is told as far as it came, and no reason to call it whole") {
  const std::pair<std::string, std::string> table[] = {
    {"", ""},
    {a, R"({"a": ")"},
    {a + "Ny", R"({"a": "Ny)"},
    {a + "Ny" + end_a, R"({"a": "Ny")"},
    {a + "Ny" + end_a + "</｜DSML｜ inv", R"({"a": "Ny")"},
    {"<｜DSML｜ parameter name=\"n\" string=\"false\">{\"k\": 1</", R"({"n": {"k": 1</)"},
  };
  for (const auto& [inside, arguments] : table) {
    CAPTURE(inside);
    const auto text = "Yes.\n\n<｜DSML｜ calls>\n" + f + inside;
    const auto output = parse_both_ways(text);
    CHECK(output.content == "Yes.");
    CHECK(output.calls == std::vector<parsed_call>{{"f", arguments}});
    CHECK(finish_of(text, finish_reason::stop) == finish_reason::stop);
    CHECK(finish_of(text, finish_reason::length) == finish_reason::length);
    const auto second = "<｜DSML｜ calls>\n" + f + end_f + f + inside;
    CHECK(parse_both_ways(second).calls[0].arguments == "{}");
    CHECK(finish_of(second, finish_reason::stop) == finish_reason::tool_calls);
  }
}
