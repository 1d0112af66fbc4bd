#include <doctest/doctest.h>

#include <algorithm>

#include "actors/output_stream.hpp"

using namespace deepinfer;

namespace {

const tokenizer& words() {
  static const auto loaded =
    tokenizer::open(std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41").value();
  return loaded;
}

/// What a client reads when `ids` arrive one chunk each and then the finish.
struct reading {
  std::vector<std::string> pieces;
  std::string text;
  std::string reasoning;
  std::vector<tool_call_delta> calls;
  sequence_finish finish;
};

reading read_all(output_stream& stream, const std::vector<token_id>& ids, sequence_finish how) {
  reading out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    sequence_chunk chunk;
    chunk.tokens = {ids[i]};
    if (i + 1 == ids.size()) chunk.finish = how;
    token_chunk seen;
    stream.push(chunk, seen);
    out.pieces.push_back(seen.text);
    out.text += seen.text;
    out.reasoning += seen.reasoning_text;
    out.calls.insert(out.calls.end(), seen.tool_calls.begin(), seen.tool_calls.end());
    if (seen.finish) out.finish = *seen.finish;
  }
  return out;
}

sequence_finish ended(finish_reason reason, std::int64_t stop_bytes = -1, std::string stop = {}) {
  sequence_finish how;
  how.reason = reason;
  how.stop_bytes = stop_bytes;
  how.stop_detail = std::move(stop);
  return how;
}

/// Where the scheduler would stop: the bytes before the first match.
sequence_finish stopped_at(const std::string& text, const std::string& stop) {
  return ended(finish_reason::stop, static_cast<std::int64_t>(text.find(stop)), stop);
}

}  // namespace

TEST_CASE("text arrives in whole characters, whatever the tokens cut") {
  const std::string text = "naïve 日本 🙂 end";
  auto stream = output_stream(words(), {});
  const auto seen =
    read_all(stream, words().encode(text, specials::off), ended(finish_reason::length));
  CHECK(seen.text == text);
  for (const auto& piece : seen.pieces) CHECK(is_utf8(piece));
}

TEST_CASE("no byte of a stop string is shown before it is certain, and none after the cut") {
  const std::string text = "one two STOP";  // the scheduler ends with the token that completes it
  const auto ids = words().encode(text, specials::off);
  for (const bool keeps : {false, true}) {
    CAPTURE(keeps);
    output_stream_options options;
    options.stop = {"STOP"};
    options.include_stop = keeps;
    auto stream = output_stream(words(), options);
    const auto seen = read_all(stream, ids, stopped_at(text, "STOP"));
    CHECK(seen.text == (keeps ? "one two STOP" : "one two "));
    for (const auto& piece : seen.pieces) CHECK((keeps || piece.find('S') == std::string::npos));
  }
}

TEST_CASE("text that only looked like a stop string is shown in the end") {
  const std::string text = "STO";
  output_stream_options options;
  options.stop = {"STOP"};
  auto stream = output_stream(words(), options);
  const auto seen =
    read_all(stream, words().encode(text, specials::off), ended(finish_reason::length));
  CHECK(seen.text == text);
}

TEST_CASE("special tokens are hidden or shown as the request wants, a stop id's own text is cut") {
  auto ids = words().encode("hi", specials::off);
  ids.push_back(1);
  auto hidden = output_stream(words(), {});
  CHECK(read_all(hidden, ids, ended(finish_reason::stop)).text == "hi");
  output_stream_options options;
  options.skip_special = false;
  options.include_stop = true;
  auto shown = output_stream(words(), options);
  CHECK(read_all(shown, ids, ended(finish_reason::stop)).text == "hi<｜end▁of▁sentence｜>");

  auto plain = words().encode("a b", specials::off);
  auto by_id = output_stream(words(), {});
  CHECK(read_all(by_id, plain, ended(finish_reason::stop)).text ==
        "a" + std::string(plain.size() > 2 ? " " : ""));
}

TEST_CASE("a chat answer is split into reasoning and content, and reasoning tokens are counted") {
  output_stream_options options;
  options.chat.emplace();
  options.chat->start = parse_start::reasoning;
  auto stream = output_stream(words(), options);
  auto ids = words().encode("I think", specials::off);
  const auto thought = static_cast<std::int32_t>(ids.size());
  ids.push_back(words().id_of("</think>").value());
  for (const auto id : words().encode("Hello", specials::off)) ids.push_back(id);
  ids.push_back(1);
  const auto seen = read_all(stream, ids, ended(finish_reason::stop));
  CHECK(seen.reasoning == "I think");
  CHECK(seen.text == "Hello");
  CHECK(seen.finish.usage.reasoning_tokens == thought + 1);
}

TEST_CASE("a model that opens its reasoning again shows nothing of that, once") {
  for (const auto* text : {"<think>I think", "I <think>think"}) {
    CAPTURE(text);
    output_stream_options options;
    options.chat.emplace();
    options.chat->start = parse_start::reasoning;
    auto stream = output_stream(words(), options);
    const auto ids = words().encode(text, specials::on);
    const auto seen = read_all(stream, ids, ended(finish_reason::length));
    CHECK(seen.reasoning == (text[0] == '<' ? "I think" : text));
    CHECK(seen.finish.usage.reasoning_tokens == static_cast<std::int32_t>(ids.size()));
  }
}

TEST_CASE("a chat answer that ends in a call finishes with tool_calls and a unique id") {
  output_stream_options options;
  options.chat.emplace();
  options.chat->start = parse_start::content;
  options.chat->parse_tool_calls = true;
  options.call_suffix = "r7";
  auto stream = output_stream(words(), options);
  const std::string text = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n"
                           "<｜DSML｜ parameter name=\"city\" string=\"true\">Rome"
                           "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  auto ids = words().encode(text, specials::on);
  ids.push_back(1);
  const auto seen = read_all(stream, ids, ended(finish_reason::stop));
  CHECK(seen.finish.reason == finish_reason::tool_calls);
  REQUIRE(!seen.calls.empty());
  CHECK(seen.calls[0].name == "get_weather");
  CHECK(seen.calls[0].id == "call_00_r7");
  std::string arguments;
  for (const auto& call : seen.calls) arguments += call.arguments;
  CHECK(arguments == R"({"city": "Rome"})");
}

TEST_CASE("logprobs bring the bytes of their ids") {
  auto stream = output_stream(words(), {});
  sequence_chunk chunk;
  chunk.tokens = words().encode("one two", specials::off);
  for (const auto id : chunk.tokens) chunk.logprobs.push_back({{id, 5}, {-0.5f, -1.5f}, {}});
  token_chunk seen;
  stream.push(chunk, seen);
  REQUIRE(seen.logprobs.size() == chunk.tokens.size());
  for (std::size_t i = 0; i < seen.logprobs.size(); ++i)
    CHECK(seen.logprobs[i].texts ==
          std::vector<std::string>{std::string(words().bytes_of(chunk.tokens[i])),
                                   std::string(words().bytes_of(5))});
}

TEST_CASE("logprobs spell what is read, whole or in pieces: no stop id, nothing behind a cut") {
  const std::string text = "one two three";
  auto ids = words().encode(text, specials::off);
  output_stream_options options;
  std::string expected = text;
  auto how = ended(finish_reason::stop);
  std::size_t left_out = 1;
  constexpr token_id end = 1;
  SUBCASE("a stop id") {
    ids.push_back(end);
  }
  SUBCASE("a stop id that is to be there") {
    ids.push_back(end);
    options.include_stop = true;
    options.skip_special = false;
    expected += words().bytes_of(end);
    left_out = 0;
  }
  SUBCASE("a stop id of a chat") {
    ids.push_back(end);
    options.chat.emplace().start = parse_start::content;
  }
  SUBCASE("a length") {
    how = ended(finish_reason::length);
    left_out = 0;
  }
  SUBCASE("a stop string between tokens") {
    ids = words().encode("one two", specials::off);  // the scheduler ends it there
    options.stop = {" two"};
    how = stopped_at(text, " two");
    expected = "one";
    left_out = words().encode(" two", specials::off).size();
  }
  SUBCASE("a stop string of a chat, which its own parser finds") {
    options.chat.emplace().start = parse_start::content;
    options.chat->stop = {" two"};
    expected = "one";
    left_out = words().encode(" two three", specials::off).size();
  }
  SUBCASE("the end of tokens that nothing ended") {
    options.stop = {"three!"};
    how = ended(finish_reason::length);
    left_out = 0;
  }
  for (const std::size_t width : {std::size_t{1}, ids.size()}) {
    CAPTURE(width);
    auto stream = output_stream(words(), options);
    std::string read, spelt;
    std::size_t listed = 0;
    for (std::size_t at = 0; at < ids.size(); at += width) {
      sequence_chunk chunk;
      for (std::size_t i = at; i < at + width; ++i) {
        chunk.tokens.push_back(ids[i]);
        chunk.logprobs.push_back({{ids[i]}, {-0.5f}, {}});
      }
      if (at + width == ids.size()) chunk.finish = how;
      token_chunk seen;
      stream.push(chunk, seen);
      CHECK(seen.ids == chunk.tokens);
      read += seen.text;
      for (const auto& it : seen.logprobs) spelt += it.texts.at(0);
      listed += seen.logprobs.size();
      CHECK(spelt.starts_with(read));  // in the chunk of its text, or of its first bytes
    }
    CHECK(read == expected);
    CHECK(spelt == expected);
    CHECK(listed == ids.size() - left_out);
  }
}

TEST_CASE("a token that a cut goes through is listed once") {
  const auto ids = words().encode("one two three", specials::off);
  const auto cut = std::find_if(ids.begin(), ids.end(),
                                [](token_id id) { return words().bytes_of(id).size() > 1; });
  REQUIRE(cut != ids.end());
  const auto bytes = words().bytes_of(*cut);
  auto stream = output_stream(words(), {});
  sequence_chunk chunk;
  chunk.tokens = {*cut};
  chunk.logprobs = {{{*cut}, {-0.5f}, {}}};
  chunk.finish = ended(finish_reason::stop, 1, std::string(bytes.substr(1, 1)));
  token_chunk seen;
  stream.push(chunk, seen);
  CHECK(seen.text == bytes.substr(0, 1));
  CHECK(seen.logprobs.size() == 1);
}
