#include "runtime/text/pre_tokenizer.hpp"

#include <chrono>

#include <doctest/doctest.h>

#include "runtime/base/random.hpp"
#include "runtime/base/utf8.hpp"

using namespace deepinfer;

namespace {

const std::vector<split_rule> deepseek_rules{
  {R"(\p{N}{1,3})"},
  {"[一-龥぀-ゟ゠-ヿ]+"},
  {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]"
   "+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"}};

using pieces = std::vector<std::string>;

pieces scanned(std::string_view text) {
  std::vector<std::string_view> views;
  split_deepseek(text, views);
  return {views.begin(), views.end()};
}

pieces by_regex(const std::vector<regex_split>& stages, std::string_view text) {
  std::vector<std::string_view> current{text}, next;
  for (const auto& stage : stages) {
    next.clear();
    for (const auto piece : current) stage.split(piece, true, true, next);
    current.swap(next);
  }
  return {current.begin(), current.end()};
}

regex_split compiled(const std::string& pattern) {
  auto made = regex_split::compile(pattern);
  REQUIRE_MESSAGE(made.has_value(), made.error().message);
  return *std::move(made);
}

}  // namespace

TEST_CASE("DeepSeek's split follows its three rules in order") {
  const std::pair<const char*, pieces> table[] = {
    {"1234567", {"123", "456", "7"}},
    {"a1b", {"a", "1", "b"}},
    {"½²١٢٣", {"½²١", "٢٣"}},
    {"don't I'm", {"don", "'t", " I", "'m"}},
    {"x.foo(bar)", {"x", ".foo", "(bar", ")"}},
    {"a  b", {"a", " ", " b"}},
    {"a   ", {"a", "   "}},
    {"  1", {"  ", "1"}},
    {"a \n \n b", {"a", " \n \n", " b"}},
    {"a!\r\n\r\nb", {"a", "!\r\n\r\n", "b"}},
    {" !?x", {" !?", "x"}},
    {"!?x", {"!?", "x"}},
    {"\tfoo", {"\tfoo"}},
    {"\x01\x02"
     "a",
     {"\x01", "\x02"
              "a"}},
    {"\x01\x02", {"\x01\x02"}},
    {"漢字かなカナ龦", {"漢字かなカナ", "龦"}},
    {"ア・イ゠", {"ア", "・", "イ", "゠"}},
    {"漢!字", {"漢", "!", "字"}},
    {"é\u0301\u0302", {"é\u0301\u0302"}},
    {"1\u0301", {"1", "\u0301"}},
    {"\u00A0\u3000x", {"\u00A0", "\u3000x"}},
    {"\u180E\u180Ex", {"\u180E", "\u180Ex"}},
    {"", {}},
  };
  for (const auto& [text, expected] : table) {
    CAPTURE(text);
    CHECK(scanned(text) == expected);
  }
}

TEST_CASE("the scanner splits as the regexes do, on random runs of characters of every class") {
  std::vector<regex_split> stages;
  for (const auto& rule : deepseek_rules) stages.push_back(compiled(rule.pattern));
  // Characters that are older than PCRE2's Unicode; repeated ones are more likely.
  const char32_t pool[] = {
    ' ',     ' ',    ' ',    '\t',   '\n',   '\n',     '\r',   'a',    'Z',     '1',
    '9',     '.',    '\'',   '_',    '+',    0,        0x7F,   0x85,   0xA0,    0x3000,
    0x2028,  0x4E00, 0x9FA5, 0x9FA6, 0x3040, 0x3042,   0x3097, 0x3099, 0x309B,  0x30A0,
    0x30A2,  0x30FB, 0x30FC, 0x301,  0x903,  0x20DD,   0xBD,   0x661,  0x2160,  0x20AC,
    0x1F600, 0x200D, 0xFEFF, 0x378,  0xE000, 0x10FFFF, 0x180E, 0xE9,   0x1D11E, 0x1D7CE};
  std::uint64_t seed = 2024;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (auto left = 1 + split_mix64(seed++) % 14; left > 0; --left)
      append_utf8(text, pool[split_mix64(seed++) % std::size(pool)]);
    CAPTURE(text);
    REQUIRE(scanned(text) == by_regex(stages, text));
  }
}

TEST_CASE("DeepSeek's rules are recognised by meaning, and nothing else is") {
  CHECK(are_deepseek_rules(deepseek_rules));
  auto escaped = deepseek_rules;
  escaped[1].pattern = R"([\u30a0-\u30FF\x{4E00}-\x{9fa5}\u3040-\u309F]+)";
  escaped[2].pattern =
    R"([!"#$%&'()*+,\-.\/:;<=>?@\[\\\]^_`{|}~][a-zA-Z]+|[^\n\r\p{P}\p{L}\p{S}]?[\p{M}\p{L}]+)"
    R"(| ?[\p{S}\p{P}]+[\n\r]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  CHECK(are_deepseek_rules(escaped));
  const std::pair<std::size_t, const char*> changes[] = {
    {0, R"(\p{N}{1,4})"},
    {0, R"(\p{N})"},
    {0, R"(\p{Nd}{1,3})"},
    {1, "[一-龦぀-ゟ゠-ヿ]+"},
    {1, "[^一-龥぀-ゟ゠-ヿ]+"},
    {2, R"(\s+)"},
    {2, ""},
    {2, "\xFF"},
    {2, R"([\x{)"},
  };
  for (const auto& [stage, pattern] : changes) {
    CAPTURE(pattern);
    auto rules = deepseek_rules;
    rules[stage].pattern = pattern;
    CHECK_FALSE(are_deepseek_rules(rules));
  }
  auto swapped = deepseek_rules;
  std::swap(swapped[0], swapped[1]);
  CHECK_FALSE(are_deepseek_rules(swapped));
  auto removing = deepseek_rules;
  removing[0].keeps_matches = false;
  CHECK_FALSE(are_deepseek_rules(removing));
  auto literal = deepseek_rules;
  literal[0].is_regex = false;
  CHECK_FALSE(are_deepseek_rules(literal));
  CHECK_FALSE(are_deepseek_rules({}));
}

TEST_CASE("other rules keep or drop matches and gaps as they say") {
  struct rule_case {
    split_rule rule;
    pieces expected;
  };
  const rule_case table[] = {
    {{.pattern = R"(\d+)"}, {"ab", "12", "c", "3"}},
    {{.pattern = R"(\d+)", .keeps_matches = false}, {"ab", "c"}},
    {{.pattern = R"(\d+)", .keeps_gaps = false}, {"12", "3"}},
    {{.pattern = "b1", .is_regex = false}, {"a", "b1", "2c3"}},
    {{.pattern = ".", .is_regex = false}, {"ab12c3"}},
    {{.pattern = "x*"}, {"ab12c3"}},
  };
  for (const auto& row : table) {
    CAPTURE(row.rule.pattern);
    const auto made = pre_tokenizer::make({row.rule});
    REQUIRE(made.has_value());
    std::vector<std::string_view> views;
    made->split("ab12c3", views);
    CHECK(pieces(views.begin(), views.end()) == row.expected);
  }
}

TEST_CASE("white space of a regex is Unicode's White_Space, without U+180E") {
  const auto spaces = compiled(R"(\s+)"), others = compiled(R"(\S+)"), both = compiled(R"([^\s]+)");
  const std::string text = "a\u180E\u0085\u00A0\u3000\u2003z";
  const pieces expected{"a\u180E", "\u0085\u00A0\u3000\u2003", "z"};
  for (const auto* rule : {&spaces, &others, &both}) {
    std::vector<std::string_view> views;
    rule->split(text, true, true, views);
    CHECK(pieces(views.begin(), views.end()) == expected);
  }
}

TEST_CASE("a pattern that does not compile names itself and the place") {
  const auto broken = regex_split::compile("(a|b");
  REQUIRE_FALSE(broken.has_value());
  CHECK(broken.error().code == errc::bad_checkpoint);
  CHECK(broken.error().message.find("(a|b") != std::string::npos);
  CHECK(broken.error().message.find("offset 4") != std::string::npos);
  CHECK_FALSE(regex_split::literal("").has_value());
}

TEST_CASE("a pattern that would try for ever ends at its limit and keeps the text") {
  const auto trap = compiled("(a+a+)+b");
  const std::string text(60, 'a');
  std::vector<std::string_view> views;
  trap.split(text, true, true, views);
  CHECK(pieces(views.begin(), views.end()) == pieces{text});
}
