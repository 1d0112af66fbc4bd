#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/core/stop_rule.hpp"

using namespace deepinfer;

namespace {

/// Token 100 + c spells the character c; tokens below 100 spell what the test gives them.
class table_texts final : public token_texts {
public:
  std::vector<std::string> texts{"<eos>", "<think>"};
  token_id add(std::string text) {
    texts.push_back(std::move(text));
    return static_cast<token_id>(texts.size() - 1);
  }
  std::string_view bytes(token_id token) const override {
    return texts.at(static_cast<std::size_t>(token));
  }
  bool is_special(token_id token) const override { return token < 2; }
};

constexpr token_id eos = 0, think = 1;

std::vector<std::string> list(std::initializer_list<const char*> stops) {
  return {stops.begin(), stops.end()};
}

}  // namespace

TEST_CASE("the earliest terminator inside a run wins, and everything behind it is dropped [I36]") {
  table_texts texts;
  const auto a = texts.add("xa"), b = texts.add("by"), c = texts.add("c");
  struct stop_case {
    const char* name;
    std::vector<std::string> stop;
    std::vector<token_id> stop_ids;
    std::int64_t limit;
    std::vector<token_id> run;
    std::int32_t kept;
    finish_reason reason;
    const char* detail;
    std::int64_t stop_bytes;
  };
  const stop_case table[] = {
    {"eos second of four", {}, {}, 99, {a, eos, b, c}, 2, finish_reason::stop, "0", -1},
    {"string over tokens 2 and 3 of 4",
     {"ab"},
     {},
     99,
     {c, a, b, c},
     3,
     finish_reason::stop,
     "ab",
     2},
    {"stop id before the string", {"c"}, {a}, 99, {b, a, c}, 2, finish_reason::stop, "2", -1},
    {"string before eos", {"by"}, {}, 99, {b, eos}, 1, finish_reason::stop, "by", 0},
    {"limit before eos", {}, {}, 2, {a, b, eos}, 2, finish_reason::length, "", -1},
    {"eos at the limit is a stop", {}, {}, 2, {a, eos, b}, 2, finish_reason::stop, "0", -1},
    {"string at the limit is a stop", {"xab"}, {}, 2, {a, b}, 2, finish_reason::stop, "xab", 0},
    {"nothing", {"zz"}, {77}, 99, {a, b, c}, 3, finish_reason::none, "", -1},
  };
  for (const auto& row : table) {
    CAPTURE(row.name);
    sampling_params params;
    params.stop = row.stop;
    params.stop_token_ids = row.stop_ids;
    stop_rule rule(params, eos, {}, row.limit, &texts);
    const auto verdict = rule.check(row.run);
    CHECK(verdict.kept == row.kept);
    CHECK(verdict.reason == row.reason);
    CHECK(verdict.detail == row.detail);
    CHECK(verdict.stop_bytes == row.stop_bytes);
    CHECK(rule.outputs() == row.kept);
  }
}

TEST_CASE("eos is ignored when asked, further eos ids end too, and stop ids of the request always "
          "do") {
  table_texts texts;
  const auto other = texts.add("o"), word = texts.add("w");
  const std::vector<token_id> more{other};
  sampling_params params;
  params.stop_token_ids = {word};
  CHECK(stop_rule(params, eos, more, 9, &texts).check(std::vector{other}).reason ==
        finish_reason::stop);
  params.ignore_eos = true;
  stop_rule rule(params, eos, more, 9, &texts);
  CHECK(rule.check(std::vector{eos, other}).reason == finish_reason::none);
  CHECK(rule.check(std::vector{word}).reason == finish_reason::stop);
  CHECK(stop_rule({}, -1, {}, 9, nullptr).check(std::vector{eos}).reason == finish_reason::none);
}

TEST_CASE("a terminator before min_tokens is plain text, one at it counts") {
  table_texts texts;
  const auto a = texts.add("a"), b = texts.add("b");
  sampling_params params;
  params.min_tokens = 3;
  params.stop = list({"ab"});
  stop_rule rule(params, eos, {}, 99, &texts);
  CHECK(rule.check(std::vector{a, b}).reason == finish_reason::none);
  CHECK(rule.check(std::vector{a}).reason == finish_reason::none);
  const auto verdict = rule.check(std::vector{b});
  CHECK(verdict.reason == finish_reason::stop);
  CHECK(verdict.stop_bytes == 2);
  stop_rule second(params, eos, {}, 99, &texts);
  CHECK(second.check(std::vector{eos, eos}).reason == finish_reason::none);
  CHECK(second.check(std::vector{eos}).reason == finish_reason::stop);
}

TEST_CASE("special tokens belong to the text only when they are shown") {
  table_texts texts;
  const auto a = texts.add("a"), b = texts.add("b");
  sampling_params params;
  params.stop = list({"ab"});
  CHECK(stop_rule(params, eos, {}, 99, &texts).check(std::vector{a, think, b}).reason ==
        finish_reason::stop);
  params.skip_special_tokens = false;
  CHECK(stop_rule(params, eos, {}, 99, &texts).check(std::vector{a, think, b}).reason ==
        finish_reason::none);
  params.stop = list({"a<th"});
  CHECK(stop_rule(params, eos, {}, 99, &texts).check(std::vector{a, think, b}).kept == 2);
}

TEST_CASE("of several matches the one complete first wins, of those the longest") {
  struct match_case {
    std::vector<std::string> stops;
    const char* text;
    std::int32_t stop;
    std::int64_t stop_bytes, end_bytes;
  };
  const match_case table[] = {
    {{"abcd", "bc"}, "xabcd", 1, 2, 4}, {{"c", "abc", "bc"}, "abc", 1, 0, 3},
    {{"aab"}, "aaaab", 0, 2, 5},        {{"abab", "b"}, "aabab", 1, 2, 3},
    {{"", "b"}, "ab", 1, 1, 2},         {{"\xE2\x82\xAC"}, "1\xE2\x82\xAC", 0, 1, 4},
  };
  for (const auto& row : table) {
    CAPTURE(row.text);
    stop_matcher matcher(row.stops);
    const auto found = matcher.feed(row.text);
    REQUIRE(found);
    CHECK(found->stop == row.stop);
    CHECK(found->stop_bytes == row.stop_bytes);
    CHECK(found->end_bytes == row.end_bytes);
  }
}

TEST_CASE("held back is exactly the longest end of the text that may begin a stop string, and "
          "empty stops hold and match nothing") {
  struct hold_case {
    std::vector<std::string> stops;
    const char* text;
    std::int64_t safe;
  };
  const hold_case table[] = {
    {{"stop"}, "xst", 1},     {{"stop"}, "xsta", 4},
    {{"aab"}, "xaaa", 2},     {{"own fox", "n f"}, "brown ", 2},
    {{""}, "abc", 3},         {{}, "abc", 3},
    {{"ababc"}, "ababab", 2}, {{"a"}, "bbb", 3},
  };
  for (const auto& row : table) {
    CAPTURE(row.text);
    stop_matcher matcher(row.stops);
    CHECK_FALSE(matcher.feed(row.text));
    CHECK(matcher.safe_bytes() == row.safe);
  }
}

TEST_CASE("how the bytes are split changes neither the match nor what is safe to show, and a naive "
          "search agrees [I36][I38]") {
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    std::uint32_t drawn = 0;
    const auto below = [&](std::uint32_t bound) {
      return random_words(seed, drawn++, draw_purpose::target, 0)[0] % bound;
    };
    std::string text;
    for (auto n = 5 + below(30); n > 0; --n) text += static_cast<char>('a' + below(2));
    std::vector<std::string> stops(1 + below(3));
    for (auto& stop : stops)
      for (auto n = 1 + below(6); n > 0; --n) stop += static_cast<char>('a' + below(2));

    std::size_t end = 0, begin = std::string::npos;
    while (begin == std::string::npos && end < text.size()) {
      ++end;
      for (const auto& stop : stops)
        if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0)
          begin = std::min(begin, end - stop.size());
    }
    stop_matcher matcher(stops);
    std::optional<stop_matcher::match> found;
    for (std::size_t at = 0; at < text.size() && !found;) {
      const auto size = std::min<std::size_t>(1 + below(5), text.size() - at);
      found = matcher.feed(std::string_view(text).substr(at, size));
      at += size;
      if (found) break;
      std::size_t held = 0;  // naive: the longest end that begins a stop
      for (const auto& stop : stops)
        for (std::size_t n = 1; n < stop.size() && n <= at; ++n)
          if (text.compare(at - n, n, stop, 0, n) == 0) held = std::max(held, n);
      CHECK(matcher.safe_bytes() == static_cast<std::int64_t>(at - held));
    }
    CHECK(found.has_value() == (begin != std::string::npos));
    if (!found) continue;
    CHECK(found->stop_bytes == static_cast<std::int64_t>(begin));
    CHECK(found->end_bytes == static_cast<std::int64_t>(end));
  }
}

TEST_CASE("text shown as it becomes safe is the text before the stop, at every split point of a "
          "long stop string") {
  const std::string text = "and so the quick brown fox jumps over the lazy dog and sleeps";
  const std::string stop = "quick brown fox jumps over the lazy dog and sl";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    for (std::size_t second = cut; second <= text.size(); second += 7) {
      stop_matcher matcher(std::vector<std::string>{stop});
      const std::string_view view = text;
      std::optional<stop_matcher::match> found;
      std::int64_t shown = 0;
      for (const auto part :
           {view.substr(0, cut), view.substr(cut, second - cut), view.substr(second)}) {
        if (!found) found = matcher.feed(part);
        if (!found) shown = std::max(shown, matcher.safe_bytes());
      }
      REQUIRE(found);
      CHECK(shown <= found->stop_bytes);
      CHECK(text.substr(0, static_cast<std::size_t>(found->stop_bytes)) == "and so the ");
    }
  }
}
