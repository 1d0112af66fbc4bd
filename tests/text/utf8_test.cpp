#include "runtime/base/utf8.hpp"

#include <doctest/doctest.h>

#include "runtime/base/random.hpp"
#include "runtime/text/unicode_class.hpp"
#include "tests/text/text_fixtures.hpp"

using namespace deepinfer;

namespace {

const std::string mark(replacement_character);

std::string marks(int count) {
  std::string text;
  for (; count > 0; --count) text += mark;
  return text;
}

}  // namespace

TEST_CASE("every scalar value is read back as it was written") {
  for (char32_t point = 0; point < 0x110000; ++point) {
    if (point == 0xD800) point = 0xE000;
    std::string text;
    append_utf8(text, point);
    const auto step = read_utf8(text);
    REQUIRE(step.what == utf8_step::kind::valid);
    REQUIRE(step.size == text.size());
    REQUIRE(step.code_point == point);
    for (std::size_t cut = 1; cut < text.size(); ++cut)
      REQUIRE(read_utf8(std::string_view(text).substr(0, cut)).what == utf8_step::kind::unfinished);
  }
}

TEST_CASE("each maximal invalid part becomes one U+FFFD [Unicode 16, tables 3-8 to 3-11]") {
  const std::pair<std::string, std::string> table[] = {
    {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", marks(8) + "A"},
    {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", marks(8) + "A"},
    {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", marks(5) + "A" + marks(2) + "B"},
    {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", marks(4) + "A"},
    {"a\xF0\x9F\x98", "a" + mark},
    {"\xF8\x88\x80\x80\x80", marks(5)},
    {"", ""},
  };
  for (const auto& [bytes, repaired] : table) {
    CAPTURE(repaired);
    CHECK(repair_utf8(bytes) == repaired);
    CHECK(is_utf8(repaired));
    CHECK(is_utf8(bytes) == (bytes == repaired));
  }
}

TEST_CASE("a stream of bytes gives the same text however it is cut, and only whole characters") {
  std::uint64_t seed = 77;
  const std::string pool[] = {"a",        "é",    "鿜",  "🫠",    "\xF0\x9F",
                              "\xE2\x82", "\x80", "\xFF", "\xED\xA0"};
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (auto parts = split_mix64(seed++) % 12; parts > 0; --parts)
      bytes += pool[split_mix64(seed++) % std::size(pool)];
    utf8_stream stream;
    std::string text;
    for (std::size_t at = 0; at < bytes.size();) {
      const auto size = 1 + split_mix64(seed++) % 5;
      std::string piece;
      stream.push_into(piece, std::string_view(bytes).substr(at, size));
      REQUIRE(is_utf8(piece));
      text += piece;
      at += size;
    }
    REQUIRE(text + stream.finish() == repair_utf8(bytes));
  }
}

TEST_CASE("the class table is that of Unicode 16 for every code point") {
  const auto golden = read_json_file(DI_SOURCE_DIR "/tests/golden/text/unicode_classes.json");
  REQUIRE(golden.has_value());
  const std::string letters = "OCRNLPS";
  std::int64_t covered = 0;
  for (const auto& run : golden->at("runs").as_array()) {
    const auto expected = static_cast<char_class>(letters.find(string_of(run.at(2))));
    for (auto point = run.at(0).as_int64(); point <= run.at(1).as_int64(); ++point, ++covered)
      REQUIRE(class_of(static_cast<char32_t>(point)) == expected);
  }
  CHECK(covered == 0x110000 - 0x800);
  CHECK(class_of(0xD800) == char_class::other);
  CHECK(class_of(0x110000) == char_class::other);
}
