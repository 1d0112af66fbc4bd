// tests/golden/text/tokenize.jsonl and decode.jsonl against DeepSeek's own tokenizer.json.
#include <doctest/doctest.h>

#include "runtime/base/utf8.hpp"
#include "runtime/text/detokenizer.hpp"
#include "tests/support/deepseek_tokenizer.hpp"
#include "tests/text/text_fixtures.hpp"

using namespace deepinfer;

namespace {

void check_ids(const tokenizer& words, const json::object& record, const std::string& text) {
  const auto expected = numbers_of<token_id>(record.at("ids"));
  const auto mode = string_of(record.at("special"));
  REQUIRE((mode == "on") + (mode == "off") + (mode == "both") == 1);
  if (mode != "off") CHECK(words.encode(text, specials::on) == expected);
  if (mode != "on") CHECK(words.encode(text, specials::off) == expected);
}

}  // namespace

TEST_CASE("every tokenize fixture gives its ids, its split and its pieces") {
  const auto* words = deepseek_tokenizer();
  if (words == nullptr) return;
  int splits = 0, pieces = 0;
  const auto count = each_record("tokenize.jsonl", [&](const json::object& record) {
    const auto text = text_of_record(record);
    check_ids(*words, record, text);
    if (record.contains("bytes_hex")) return;
    if (const auto* split = record.if_contains("split"); split != nullptr && split->is_array()) {
      CHECK(words->split(text) == numbers_of<std::size_t>(*split));
      ++splits;
    }
    detokenizer stream(*words, {.skip_special = false});
    std::vector<std::string> emitted;
    for (const auto id : numbers_of<token_id>(record.at("ids"))) emitted.push_back(stream.push(id));
    CHECK(stream.finish().empty());
    if (const auto* expected = record.if_contains("pieces"); expected && expected->is_array()) {
      CHECK(emitted == strings_of(*expected));
      ++pieces;
    }
    std::string whole;
    for (const auto& piece : emitted) whole += piece;
    CHECK(whole == text);
  });
  CHECK(count == 396);
  CHECK(splits > 300);
  CHECK(pieces > 300);
}

TEST_CASE("invalid UTF-8 kept gives the byte-faithful ids, which decode to the same bytes") {
  const auto* words = deepseek_tokenizer();
  if (words == nullptr) return;
  int count = 0;
  each_record("tokenize.jsonl", [&](const json::object& record) {
    const auto* expected = record.if_contains("ids_bytes");
    if (expected == nullptr) return;
    const auto bytes = text_of_record(record);
    const auto ids = words->encode(bytes, specials::off, bad_bytes::keep);
    CHECK(ids == numbers_of<token_id>(*expected));
    std::string back;
    for (const auto id : ids) back += words->bytes_of(id);
    CHECK(back == bytes);
    ++count;
  });
  CHECK(count == 18);
}

TEST_CASE("every decode fixture gives its bytes, its pieces and its tail") {
  const auto* words = deepseek_tokenizer();
  if (words == nullptr) return;
  const auto count = each_record("decode.jsonl", [&](const json::object& record) {
    const detokenizer_options options{.skip_special = record.at("skip_special").as_bool()};
    detokenizer stream(*words, options);
    std::string bytes, whole;
    std::vector<std::string> pieces;
    const auto ids = numbers_of<token_id>(record.at("ids"));
    for (const auto id : ids) {
      bytes += stream.bytes_of(id);
      pieces.push_back(stream.push(id));
      whole += pieces.back();
    }
    const auto tail = stream.finish();
    CHECK(bytes == from_hex(string_of(record.at("bytes_hex"))));
    CHECK(pieces == strings_of(record.at("pieces")));
    CHECK(tail == string_of(record.at("tail")));
    CHECK(whole + tail == string_of(record.at("text")));
    CHECK(detokenize(*words, ids, options) == whole + tail);
  });
  CHECK(count == 106);
}

TEST_CASE("quoted strings of the V3 and V4 tokenizers give their published ids") {
  const auto* words = deepseek_tokenizer();
  if (words == nullptr) return;
  const std::pair<const char*, std::vector<token_id>> table[] = {
    {"Hello! 毕老师！1 + 1 = 2 ĠÑĤÐ²ÑĬÑĢ",
     {19923, 3,   223,   5464, 5008, 1175,  19,   940,   223, 19,  438,   223, 20,
      6113,  257, 76589, 131,  100,  76032, 1628, 76589, 131, 108, 76589, 131, 98}},
    {"1234567", {6895, 18009, 25}},
    {"don't I'm", {20385, 1664, 342, 4571}},
    {"   ", {361}},
    {"🫠🥹", {3574, 107, 257, 57522, 120}},
    {"龦鿜一", {2715, 102, 168, 126, 253, 378}},
    {"<｜User｜>hi<｜Assistant｜>", {128803, 6366, 128804}},
    {"", {}},
  };
  for (const auto& [text, ids] : table) {
    CAPTURE(text);
    CHECK(words->encode(text, specials::on) == ids);
  }
}

TEST_CASE("the V4 file is read for V4.1: its placeholder 128799 becomes <｜System｜>") {
  const auto* words = deepseek_tokenizer();
  if (words == nullptr) return;
  CHECK(words->warnings().empty());
  CHECK_FALSE(words->id_of("<｜System｜>").has_value());
  CHECK(words->bytes_of(128799) == "<｜place▁holder▁no▁799｜>");
  const auto v41 = words->as_v41();
  REQUIRE(v41.warnings().size() == 1);
  CHECK(v41.warnings()[0].find("128799") != std::string::npos);
  CHECK(v41.id_of("<｜System｜>") == 128799);
  CHECK_FALSE(v41.id_of("<｜place▁holder▁no▁799｜>").has_value());
  CHECK(v41.bytes_of(128799) == "<｜System｜>");
  CHECK(v41.is_special(128799) == words->is_special(128799));
  CHECK(v41.encode("<｜System｜>hi", specials::on) == std::vector<token_id>{128799, 6366});
  CHECK(v41.encode("<｜System｜>hi", specials::off) ==
        words->encode("<｜System｜>hi", specials::off));
  CHECK(v41.as_v41().warnings() == v41.warnings());
  // Nothing else moves.
  CHECK(v41.vocab_size() == words->vocab_size());
  for (token_id id = 0; id < words->vocab_size(); ++id)
    if (id != 128799) REQUIRE(v41.bytes_of(id) == words->bytes_of(id));
}

TEST_CASE("DeepSeek's special tokens have their known ids, found by name") {
  const auto* words = deepseek_tokenizer();
  if (words == nullptr) return;
  struct named {
    const char* name;
    token_id id;
    bool is_special;
  };
  const named table[] = {{"<｜begin▁of▁sentence｜>", 0, true},
                         {"<｜end▁of▁sentence｜>", 1, true},
                         {"<｜▁pad▁｜>", 2, true},
                         {"<｜User｜>", 128803, false},
                         {"<｜Assistant｜>", 128804, false},
                         {"<think>", 128821, false},
                         {"</think>", 128822, false},
                         {"｜DSML｜", 128825, false},
                         {"<｜latest_reminder｜>", 128828, false}};
  for (const auto& row : table) {
    CAPTURE(row.name);
    CHECK(words->id_of(row.name) == row.id);
    CHECK(words->is_added(row.id));
    CHECK(words->is_special(row.id) == row.is_special);
    CHECK(words->name_of(row.id) == row.name);
    // What a user types never becomes one.
    for (const auto id : words->encode(row.name, specials::off)) CHECK_FALSE(words->is_added(id));
  }
}
