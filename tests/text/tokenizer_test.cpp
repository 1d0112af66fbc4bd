#include "runtime/text/tokenizer.hpp"

#include <doctest/doctest.h>

#include "runtime/base/utf8.hpp"
#include "runtime/text/regex_split.hpp"
#include "tests/support/deepseek_tokenizer.hpp"
#include "tests/text/text_fixtures.hpp"

using namespace deepinfer;

namespace {

std::string tiny_json() {
  auto text = read_file(DI_SOURCE_DIR "/examples/models/tiny-v41/tokenizer.json");
  REQUIRE(text.has_value());
  return *std::move(text);
}

/// The random model's small file as a value, to be changed and read again.
json::value small_file() {
  auto read = read_json_file(DI_SOURCE_DIR "/tests/golden/model/v41-a-plain/tokenizer.json");
  REQUIRE(read.has_value());
  return *std::move(read);
}

tokenizer parsed(const json::value& file) {
  auto made = tokenizer::parse(to_text(file));
  REQUIRE_MESSAGE(made.has_value(), made.error().message);
  return *std::move(made);
}

json::object& model_of(json::value& file) {
  return file.as_object()["model"].as_object();
}

json::object added(token_id id, const char* content) {
  return {{"id", id},        {"content", content}, {"special", false},    {"normalized", false},
          {"lstrip", false}, {"rstrip", false},    {"single_word", false}};
}

tokenizer with_added(std::initializer_list<json::object> tokens) {
  auto file = small_file();
  for (const auto& token : tokens) file.as_object()["added_tokens"].as_array().push_back(token);
  return parsed(file);
}

/// The names of the tokens of a text, with added ones read, plain neighbours joined.
std::vector<std::string> parts(const tokenizer& words, std::string_view text) {
  std::vector<std::string> found;
  bool is_open = false;
  for (const auto id : words.encode(text, specials::on)) {
    if (words.is_added(id)) {
      found.push_back("[" + words.name_of(id) + "]");
      is_open = false;
      continue;
    }
    if (!is_open) found.emplace_back();
    is_open = true;
    found.back() += words.bytes_of(id);
  }
  return found;
}

using names = std::vector<std::string>;

}  // namespace

TEST_CASE("the tiny model's prompts give the ids it was tested with") {
  const auto words = tiny_tokenizer();
  CHECK(words.warnings().empty());
  CHECK(words.vocab_size() == 2048);
  const auto golden = read_json_file(DI_SOURCE_DIR "/examples/models/tiny-v41/goldens.json");
  REQUIRE(golden.has_value());
  int count = 0;
  for (const auto* list : {"raw", "chat"})
    for (const auto& prompt : golden->at(list).as_array()) {
      const auto text = string_of(prompt.at("prompt_text"));
      CAPTURE(text);
      CHECK(words.encode(text, specials::on) == numbers_of<token_id>(prompt.at("prompt_ids")));
      ++count;
    }
  CHECK(count == 30);
}

TEST_CASE("with specials off no text gives an added token, with specials on its name does") {
  const auto words = tiny_tokenizer();
  int count = 0;
  for (token_id id = 0; id < words.vocab_size(); ++id) {
    if (!words.is_added(id)) continue;
    const auto name = words.name_of(id);
    CAPTURE(name);
    CHECK(words.id_of(name) == id);
    CHECK(words.bytes_of(id) == name);
    CHECK(words.encode(name, specials::on) == std::vector<token_id>{id});
    for (const auto part : words.encode("x" + name + name, specials::off))
      CHECK_FALSE(words.is_added(part));
    ++count;
  }
  CHECK(count == 21);
}

TEST_CASE("every token is found by its name, and unknown ids have nothing") {
  const auto words = tiny_tokenizer();
  for (token_id id = 0; id < words.vocab_size(); ++id)
    REQUIRE(words.id_of(words.name_of(id)) == id);
  CHECK(words.is_special(0));
  CHECK_FALSE(words.is_special(*words.id_of("<｜User｜>")));
  for (const token_id unknown : {-1, 2048, 1 << 30, -(1 << 30)}) {
    CHECK_FALSE(words.is_known(unknown));
    CHECK_FALSE(words.is_special(unknown));
    CHECK(words.bytes_of(unknown).empty());
    CHECK(words.name_of(unknown).empty());
  }
  CHECK_FALSE(words.id_of("<｜Nobody｜>").has_value());
  CHECK_FALSE(words.id_of("").has_value());
}

TEST_CASE("encode_into appends, and an empty text has no ids") {
  const auto words = tiny_tokenizer();
  std::vector<token_id> ids{42};
  words.encode_into(ids, "", specials::on);
  CHECK(ids == std::vector<token_id>{42});
  words.encode_into(ids, "Hello", specials::off);
  CHECK(ids == std::vector<token_id>{42, 1291});
}

TEST_CASE("merges written as one string or as two are the same merges") {
  auto file = small_file();
  auto& merges = model_of(file)["merges"].as_array();
  const auto pairs = parsed(file);
  for (auto& merge : merges)
    merge = json::string(string_of(merge.at(0)) + " " + string_of(merge.at(1)));
  merges.insert(merges.begin(), json::string("#version: 0.2"));
  const auto strings = parsed(file);
  const std::string text = "There were three trees, and the other weather.\né！";
  CHECK(pairs.encode(text, specials::off) == strings.encode(text, specials::off));
  CHECK(pairs.encode(text, specials::off).size() < text.size());
}

TEST_CASE("ignore_merges takes a piece that is a token as a whole") {
  auto file = small_file();
  model_of(file)["vocab"].as_object()["zqx"] = 288;  // no merge makes it
  CHECK(parsed(file).encode("zqx", specials::off).size() == 3);
  model_of(file)["ignore_merges"] = true;
  CHECK(parsed(file).encode("zqx", specials::off) == std::vector<token_id>{288});
  CHECK(parsed(file).encode("zqxx", specials::off).size() == 4);
}

TEST_CASE(
  "added tokens: the leftmost, then the longest, and those not normalized before the rest") {
  auto late = added(290, "ab<");
  late["normalized"] = true;
  const auto words = with_added({added(288, "<a>"), added(289, "<a>b"), late});
  CHECK(parts(words, "x<a>y") == names{"x", "[<a>]", "y"});
  CHECK(parts(words, "<a>b<a>") == names{"[<a>b]", "[<a>]"});
  CHECK(parts(words, "ab<a>") == names{"ab", "[<a>]"});
  CHECK(parts(words, "ab<c") == names{"[ab<]", "c"});
  CHECK(parts(words, "<a<a>") == names{"<a", "[<a>]"});
}

TEST_CASE("added tokens: strips take the white space beside, single words stand alone") {
  auto left = added(288, "<l>"), right = added(289, "<r>"), word = added(290, "cat");
  left["lstrip"] = true;
  right["rstrip"] = true;
  word["single_word"] = true;
  const auto words = with_added({left, right, word});
  CHECK(parts(words, "a \n<l> b") == names{"a", "[<l>]", " b"});
  CHECK(parts(words, "a <r>\u3000 b") == names{"a ", "[<r>]", "b"});
  CHECK(parts(words, "<r>  <l>") == names{"[<r>]", "[<l>]"});
  CHECK(parts(words, "cat, cat") == names{"[cat]", ", ", "[cat]"});
  CHECK(parts(words, "cats concat é_cat") == names{"cats concat é_cat"});
}

TEST_CASE("invalid UTF-8 is read as U+FFFD, or kept byte for byte") {
  const auto words = tiny_tokenizer();
  for (const std::string bytes :
       {"a\xFF", "\xE2\x82 \xE2\x82\xAC", "\xF0\x9F\x98", "\xED\xA0\x80x"}) {
    CAPTURE(repair_utf8(bytes));
    CHECK(words.encode(bytes, specials::on) == words.encode(repair_utf8(bytes), specials::on));
    std::string kept;
    for (const auto id : words.encode(bytes, specials::on, bad_bytes::keep))
      kept += words.bytes_of(id);
    CHECK(kept == bytes);
  }
  CHECK(words.encode("<think>\xFF</think>", specials::on, bad_bytes::keep).size() == 3);
}

TEST_CASE("a tokenizer that has <｜System｜> is a V4.1 tokenizer as it is") {
  const auto words = tiny_tokenizer();
  CHECK(words.as_v41().warnings().empty());
  CHECK(words.as_v41().id_of("<｜System｜>") == words.id_of("<｜System｜>"));
  const auto other = random_model_tokenizer();
  CHECK(other.as_v41().warnings().size() == other.warnings().size() + 1);
  CHECK(other.as_v41().encode("the", specials::on) == other.encode("the", specials::on));
}

TEST_CASE("a reserved token 128799 is read as <｜System｜> by V4.1, another one is not") {
  const auto words = with_added({added(128799, "<｜place▁holder▁no▁799｜>")});
  const auto v41 = words.as_v41();
  REQUIRE(v41.warnings().size() == words.warnings().size() + 1);
  CHECK(v41.warnings().back().find("128799") != std::string::npos);
  CHECK(v41.encode("<｜System｜>a", specials::on)[0] == 128799);
  CHECK(v41.bytes_of(128799) == "<｜System｜>");
  CHECK(words.bytes_of(128799) == "<｜place▁holder▁no▁799｜>");
  const auto other = with_added({added(128799, "<｜taken｜>")}).as_v41();
  CHECK(other.bytes_of(128799) == "<｜taken｜>");
  CHECK_FALSE(other.id_of("<｜System｜>").has_value());
}

TEST_CASE("split stages of a file drop what they are told to drop") {
  struct stage_case {
    const char* behavior;
    bool is_inverted;
    std::vector<std::size_t> sizes;
  };
  const stage_case table[] = {{"Isolated", false, {2, 1, 2}},
                              {"Isolated", true, {2, 1, 2}},
                              {"Removed", false, {2, 2}},
                              {"Removed", true, {1}}};
  for (const auto& row : table) {
    CAPTURE(row.behavior);
    CAPTURE(row.is_inverted);
    auto file = small_file();
    file.as_object()["pre_tokenizer"] = json::object{
      {"type", "Sequence"},
      {"pretokenizers",
       json::array{
         json::object{{"type", "Split"},
                      {"pattern", json::object{{"String", "-"}}},
                      {"behavior", row.behavior},
                      {"invert", row.is_inverted}},
         json::object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
    CHECK(parsed(file).split("ab-cd") == row.sizes);
  }
}

TEST_CASE("a split other than DeepSeek's is used with a warning about its Unicode") {
  const auto words = random_model_tokenizer();
  REQUIRE(words.warnings().size() == 1);
  CHECK(words.warnings()[0].find("Unicode " + regex_split::unicode_version()) != std::string::npos);
  const std::pair<const char*, std::vector<std::size_t>> table[] = {
    {"I'll don't 12345 a!?b", {1, 3, 4, 2, 6, 2, 2, 1}},
    {"a  b\n\n c", {1, 1, 2, 2, 2}},
    {"X'S", {1, 1, 1}},
    {"é中 ñ", {5, 3}},
  };
  for (const auto& [text, sizes] : table) {
    CAPTURE(text);
    CHECK(words.split(text) == sizes);
  }
}

TEST_CASE("layouts of the stages around the model that change nothing are read") {
  const auto text = tiny_json();
  const auto plain = tiny_tokenizer();
  const std::string sample = "It's 12345 o'clock.  漢字\n";
  const std::pair<std::string, std::string> changes[] = {
    {R"("normalizer": null)", R"("normalizer": {"type": "Sequence", "normalizers": []})"},
    {R"("type": "BPE")", R"("no_type": "BPE")"},
    {R"("dropout": null)", R"("dropout": 0.0)"},
    {R"("continuing_subword_prefix": null)", R"("continuing_subword_prefix": "")"},
  };
  for (const auto& [from, to] : changes) {
    CAPTURE(to);
    auto changed = text;
    const auto at = changed.find(from);
    REQUIRE(at != std::string::npos);
    changed.replace(at, from.size(), to);
    const auto made = tokenizer::parse(changed);
    REQUIRE_MESSAGE(made.has_value(), made.error().message);
    CHECK(made->encode(sample, specials::off) == plain.encode(sample, specials::off));
    CHECK(made->warnings().empty());
  }
}

TEST_CASE("a file that gives a token two ids or an id two names is read with a warning") {
  auto renamed = small_file(), moved = small_file();
  renamed.as_object()["added_tokens"].as_array()[3].as_object()["content"] = "<quiet>";
  moved.as_object()["added_tokens"].as_array().push_back(added(300, "T"));
  const auto new_name = parsed(renamed), new_id = parsed(moved);
  CHECK(new_name.id_of("<quiet>") == 3);
  CHECK_FALSE(new_name.id_of("<noise>").has_value());
  CHECK(new_id.encode("T", specials::on) == std::vector<token_id>{300});
  REQUIRE(new_name.warnings().size() == 2);
  CHECK(new_name.warnings()[1].find("`<noise>` in model.vocab") != std::string::npos);
  REQUIRE(new_id.warnings().size() == 2);
  CHECK(new_id.warnings()[1].find("added token `T` has id 300") != std::string::npos);
}

TEST_CASE("a file of another kind is refused with the key, what it is and what was expected") {
  struct change {
    const char* pointer;
    json::value value;
    std::vector<std::string> says;
  };
  const change table[] = {
    {"/model/type", "Unigram", {"model.type", "\"Unigram\"", "\"BPE\""}},
    {"/model/byte_fallback", true, {"model.byte_fallback"}},
    {"/model/byte_fallback", 3, {"model.byte_fallback", "true or false"}},
    {"/model/dropout", 0.5, {"model.dropout"}},
    {"/model/end_of_word_suffix", "</w>", {"model.end_of_word_suffix", "</w>"}},
    {"/model/vocab", json::array{1}, {"model.vocab", "an array of 1", "an object"}},
    {"/model/vocab/!", -4, {"model.vocab[\"!\"]", "-4"}},
    {"/model/vocab/!", 5, {"id 5 is also"}},
    {"/model/vocab/!", 4294967300, {"4294967300"}},
    {"/model/vocab/!", "4", {"model.vocab[\"!\"]", "\"4\"", "an id"}},
    {"/model/merges", json::object{}, {"model.merges", "an object", "an array"}},
    {"/model/merges/1", "a b c", {"model.merges[1]", "a b c"}},
    {"/model/merges/1", json::array{"h"}, {"model.merges[1]"}},
    {"/model/merges/1", json::array{"h", "q"}, {"model.merges[1]", "`hq`", "not in model.vocab"}},
    {"/normalizer", json::object{{"type", "NFC"}}, {"normalizer"}},
    {"/decoder", json::object{{"type", "Metaspace"}}, {"decoder", "ByteLevel"}},
    {"/pre_tokenizer", nullptr, {"pre_tokenizer", "null"}},
    {"/pre_tokenizer/type", "Metaspace", {"pre_tokenizer.type", "\"Metaspace\""}},
    {"/pre_tokenizer/add_prefix_space", true, {"add_prefix_space"}},
    {"/added_tokens/1/id", -1, {"added_tokens[1].id", "-1"}},
    {"/added_tokens/1/id", 0, {"id 0", "twice"}},
    {"/added_tokens/1/content", "<bos>", {"`<bos>`", "0", "1"}},
    {"/added_tokens/1/content", "", {"empty"}},
    {"/added_tokens/1/special", "yes", {"added_tokens[1].special", "\"yes\""}},
    {"/model", nullptr, {"model is null"}},
  };
  for (const auto& row : table) {
    CAPTURE(row.pointer);
    auto file = small_file();
    json::error_code ignored;
    auto* place = file.find_pointer(row.pointer, ignored);
    REQUIRE(place != nullptr);
    *place = row.value;
    const auto made = tokenizer::parse(to_text(file));
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().code == errc::bad_checkpoint);
    for (const auto& word : row.says) {
      CAPTURE(made.error().message);
      CHECK(made.error().message.find(word) != std::string::npos);
    }
  }
  auto file = small_file();
  model_of(file)["vocab"].as_object().erase("!");
  CHECK(tokenizer::parse(to_text(file)).error().message.find("byte 0x21") != std::string::npos);
  CHECK(tokenizer::parse("{").error().code == errc::bad_checkpoint);
  CHECK(tokenizer::parse("[]").error().message.find("expected an object") != std::string::npos);
}

TEST_CASE("a tokenizer is opened by file or folder, and errors name the path") {
  const std::string folder = DI_SOURCE_DIR "/examples/models/tiny-v41";
  CHECK(tokenizer::open(folder).has_value());
  CHECK(tokenizer::open(folder + "/tokenizer.json").has_value());
  const auto missing = tokenizer::open(folder + "/none.json");
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().code == errc::io_failed);
  CHECK(missing.error().message.find("none.json") != std::string::npos);
  const auto wrong = tokenizer::open(folder + "/config.json");
  REQUIRE_FALSE(wrong.has_value());
  CHECK(wrong.error().message.find("config.json: model is null") != std::string::npos);
  const auto pointer =
    tokenizer::parse("version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  CHECK(pointer.error().message.find("git lfs pull") != std::string::npos);
}

// A quadratic step would make one of these take hours: ctest's limit ends it.
TEST_CASE("a megabyte of anything is tokenized, nothing is quadratic") {
  const std::size_t size = 1 << 20;
  std::string prose;
  while (prose.size() < size) prose += "In the beginning was the word, and it had 12345 tokens.\n";
  std::string mixed;
  while (mixed.size() < size) mixed += "a漢1 \n\t!é🫠<｜<<think";
  const std::pair<std::string, std::string> table[] = {
    {"a", std::string(size, 'a')},
    {"space", std::string(size, ' ')},
    {"digit", std::string(size, '1')},
    {"line break", std::string(size, '\n')},
    {"symbol", std::string(size, '=')},
    {"control", std::string(size, '\x01')},
    {"broken", std::string(size, '\xFF')},
    {"opening", std::string(size, '<')},
    {"prose", prose},
    {"mixed", mixed},
  };
  std::vector<tokenizer> tokenizers{tiny_tokenizer(), random_model_tokenizer()};
  if (const auto* words = deepseek_tokenizer()) tokenizers.push_back(*words);
  for (const auto& words : tokenizers)
    for (const auto& [name, text] : table) {
      CAPTURE(name);
      const auto ids = words.encode(text, specials::on, bad_bytes::keep);
      std::string back;
      for (const auto id : ids) back += words.bytes_of(id);
      CHECK(back == text);
    }
}
