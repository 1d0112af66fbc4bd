#include "runtime/text/detokenizer.hpp"

#include <doctest/doctest.h>

#include "runtime/base/random.hpp"
#include "tests/text/text_fixtures.hpp"

using namespace deepinfer;

namespace {

std::vector<token_id> random_ids(const tokenizer& words, std::uint64_t& seed) {
  std::vector<token_id> ids;
  const auto range = static_cast<std::uint64_t>(words.vocab_size()) + 20;
  for (auto left = split_mix64(seed++) % 40; left > 0; --left) {
    // Half of them single bytes, so that sequences begin, break and complete.
    if (split_mix64(seed++) % 2 == 0) {
      ids.push_back(static_cast<token_id>(split_mix64(seed++) % range) - 5);
    } else {
      const std::string byte(1, static_cast<char>(0x80 + split_mix64(seed++) % 0x80));
      const auto single = words.encode(byte, specials::off, bad_bytes::keep);
      ids.insert(ids.end(), single.begin(), single.end());
    }
  }
  return ids;
}

}  // namespace

TEST_CASE("a stream of any ids emits valid UTF-8 only, and adds up to the repaired bytes") {
  const auto words = tiny_tokenizer();
  std::uint64_t seed = 1;
  for (int round = 0; round < 4000; ++round) {
    CAPTURE(round);
    const auto ids = random_ids(words, seed);
    for (const bool skip : {false, true}) {
      detokenizer stream(words, {.skip_special = skip});
      std::string bytes, text;
      for (const auto id : ids) {
        bytes += stream.bytes_of(id);
        const auto piece = stream.push(id);
        REQUIRE(is_utf8(piece));
        text += piece;
        // Nothing certain is held back: what waits is the start of one character, at most 3 bytes.
        REQUIRE(repair_utf8(bytes).size() <= text.size() + replacement_character.size());
      }
      text += stream.finish();
      REQUIRE(text == repair_utf8(bytes));
      REQUIRE(text == detokenize(words, ids, {.skip_special = skip}));
    }
  }
}

TEST_CASE("the text of encoded text is that text, whatever characters it has") {
  const auto words = tiny_tokenizer();
  std::uint64_t seed = 9;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (auto left = split_mix64(seed++) % 30; left > 0; --left) {
      const auto span = split_mix64(seed++) % 3 == 0 ? 0x110000u : 0x3100u;
      const auto point = static_cast<char32_t>(split_mix64(seed++) % span);
      if (point < 0xD800 || point > 0xDFFF) append_utf8(text, point);
    }
    REQUIRE(detokenize(words, words.encode(text, specials::off), {.skip_special = false}) == text);
    REQUIRE(detokenize(words, words.encode(text, specials::on), {.skip_special = false}) == text);
  }
}

TEST_CASE("skipped special tokens do not interrupt a character, shown and plain ones do") {
  const auto words = tiny_tokenizer();
  const auto bytes = words.encode("\xE2\x82", specials::off, bad_bytes::keep);
  const auto last = words.encode("\xAC", specials::off, bad_bytes::keep);
  const auto eos = *words.id_of("<｜end▁of▁sentence｜>"), user = *words.id_of("<｜User｜>");
  const auto joined = [&](token_id between) {
    auto ids = bytes;
    ids.push_back(between);
    ids.insert(ids.end(), last.begin(), last.end());
    return ids;
  };
  const std::string mark(replacement_character);
  CHECK(detokenize(words, joined(eos), {.skip_special = true}) == "€");
  CHECK(detokenize(words, joined(eos), {.skip_special = false}) ==
        mark + "<｜end▁of▁sentence｜>" + mark);
  CHECK(detokenize(words, joined(user), {.skip_special = true}) == mark + "<｜User｜>" + mark);
  CHECK(detokenize(words, joined(words.vocab_size()), {.skip_special = true}) == "€");
  CHECK(detokenize(words, joined(-1), {.skip_special = true}) == "€");
}

TEST_CASE("a finished stream starts anew") {
  const auto words = tiny_tokenizer();
  detokenizer stream(words);
  for (const auto id : words.encode("\xF0\x9F", specials::off, bad_bytes::keep))
    CHECK(stream.push(id).empty());
  CHECK(stream.finish() == replacement_character);
  CHECK(stream.finish().empty());
  CHECK(stream.push(words.encode("a", specials::off)[0]) == "a");
}
