// Where stop strings of a chat answer are looked for: in its content, in its reasoning as well.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/text/output_parser.hpp"

using namespace deepinfer;

TEST_CASE("a stop string ends the reasoning in any chunks, where the mode looks for it there") {
  struct stop_case {
    const char* text;
    std::vector<std::string> stops;
    const char* reasoning;  ///< with stop_in_reasoning
    const char* content;
    const char* whole_reasoning;  ///< without it
    const char* content_of_whole;
    bool stopped;          ///< with it
    bool stopped_outside;  ///< without it
  };
  const stop_case table[] = {
    {"brown fox</think>a fox", {"own f"}, "br", "", "brown fox", "a fox", true, false},
    {"brown fox</think>a fox", {"fox"}, "brown ", "", "brown fox", "a ", true, true},
    {"x\n\ny</think>z", {"\n\n"}, "x", "", "x\n\ny", "z", true, false},
    {"x\n\n</think>z", {"\n\nz"}, "x", "z", "x", "z", false, false},
    // What the end of thinking cuts is no stop string.
    {"aEN</think>Dx", {"END"}, "aEN", "Dx", "aEN", "Dx", false, false},
    {"aEN</think>ENDx", {"END"}, "aEN", "", "aEN", "", true, true},
    // A half-spelled marker is text, and text may hold a stop string.
    {"a</thi b</think>c", {"hi"}, "a</t", "", "a</thi b", "c", true, false},
    {"\n\nab", {"\n"}, "", "", "ab", "", true, false},
    {"😁😀x</think>y", {"😀"}, "😁", "", "😁😀x", "y", true, false},
    {"ababac</think>", {"abac"}, "ab", "", "ababac", "", true, false},
    {"x EN", {"END"}, "x EN", "", "x EN", "", false, false},
  };
  for (const auto& row : table) {
    CAPTURE(row.text);
    const std::string text = row.text;
    for (const bool tools : {false, true}) {
      for (const bool is_on : {false, true}) {
        CAPTURE(is_on);
        const std::string reasoning = is_on ? row.reasoning : row.whole_reasoning;
        const std::string content = is_on ? row.content : row.content_of_whole;
        const output_mode mode{parse_start::reasoning, tools, false, row.stops, is_on};
        const bool is_stopped = is_on ? row.stopped : row.stopped_outside;
        for (const std::size_t piece : {text.size(), std::size_t{1}}) {
          output_parser parser(mode);
          parsed_output told;
          for (std::size_t at = 0; at < text.size(); at += piece) {
            output_deltas deltas;
            parser.feed(text.substr(at, piece), deltas);
            for (const auto& delta : deltas) told.add(delta);
            // Nothing is told that is not in the result.
            CHECK(reasoning.starts_with(told.reasoning));
            CHECK(content.starts_with(told.content));
          }
          CHECK(parser.ended() == is_stopped);
          output_deltas rest;
          parser.finish(rest);
          for (const auto& delta : rest) told.add(delta);
          CHECK(told.reasoning == reasoning);
          CHECK(told.content == content);
          CHECK(parser.stopped() == is_stopped);
        }
      }
    }
  }
}
