#include "runtime/text/token_classes.hpp"

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/support/deepseek_tokenizer.hpp"
#include "tests/support/sha256.hpp"
#include "tests/text/text_fixtures.hpp"

using namespace deepinfer;

namespace {

json::value read_golden(const std::string& path) {
  auto read = read_json_file(DI_SOURCE_DIR "/" + path);
  REQUIRE(read.has_value());
  return *std::move(read);
}

void check_map(const tokenizer& words, const json::value& token_map) {
  const auto expected = numbers_of<std::int32_t>(token_map);
  const auto map = token_classes(words, static_cast<std::int32_t>(expected.size()));
  CHECK(map.class_of == expected);
  CHECK(map.class_count == 1 + *std::max_element(expected.begin(), expected.end()));
}

}  // namespace

TEST_CASE("the test's SHA-256 gives the digests of FIPS 180-4") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("the tiny model's token classes are those it was trained with") {
  const auto golden = read_golden("examples/models/tiny-v41/engram.json");
  check_map(tiny_tokenizer(), golden.at("token_map"));
  CHECK(token_classes(tiny_tokenizer(), 2048).class_count == golden.at("classes").as_int64());
}

TEST_CASE("the random model's token classes are the golden ones") {
  const auto plain = read_golden("tests/golden/model/v41-a-plain/goldens.json");
  check_map(random_model_tokenizer(), plain.at("engram").at("token_map"));
}

TEST_CASE("DeepSeek's tokenizer has 99092 token classes, with the published digest") {
  const auto* words = deepseek_tokenizer();
  if (words == nullptr) return;
  const auto map = token_classes(words->as_v41(), 129'280);
  CHECK(map.class_count == 99'092);
  const std::pair<std::size_t, std::int32_t> table[] = {
    {0, 0},          {1, 1},          {2, 2},          {128803, 98615},
    {128804, 98616}, {128821, 98633}, {128822, 98634}, {19923, 15844}};
  for (const auto& [id, expected] : table) CHECK(map.class_of[id] == expected);
  std::string bytes;
  for (const auto value : map.class_of)
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<char>(static_cast<std::uint32_t>(value) >> shift & 0xFF));
  CHECK(sha256(bytes) == "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481");
}

TEST_CASE("ids that are unknown to the tokenizer share one class") {
  const auto words = tiny_tokenizer();
  const auto map = token_classes(words, words.vocab_size() + 3);
  const auto known = static_cast<std::size_t>(words.vocab_size());
  CHECK(map.class_of[known] == map.class_of[known + 1]);
  CHECK(map.class_of[known] == map.class_of[known + 2]);
  CHECK(map.class_of[known] == map.class_count - 1);
}

TEST_CASE("tokens share a class if they differ in case, accents, forms or white space only") {
  auto file = read_golden("tests/golden/model/v41-a-plain/tokenizer.json");
  auto& tokens = file.as_object()["added_tokens"].as_array();
  const auto add = [&](const std::string& content) {
    const auto id = static_cast<token_id>(1000 + tokens.size());
    tokens.push_back(json::object{{"id", id}, {"content", content}});
    return static_cast<std::size_t>(id);
  };
  struct pair_case {
    std::string left, right;
    bool is_same;
    std::size_t left_id = 0, right_id = 0;
  };
  std::vector<pair_case> table{
    {"Straße1", "strasse1", false},  // lower case only, no folding
    {"ÉCOLE", "école", true},        // NFD and marks
    {"ecole2", "e\u0301cole2\u0301", true},
    {"ﬁn", "FIN", true},                            // compatibility form
    {"١", "1", false},                              // digits of other scripts stay
    {"क", "का", true},                              // Mc
    {"x\u20DD", "X", true},                         // Me
    {" two  words\n", "two words", true},           // white space
    {"\t\t", "  ", true},                           // protected as one space
    {"\u3000q", "q", true},                         // NFKC makes it a space
    {"\u00A8r", "r", true},                         // NFKC: space and mark
    {"\u0301\u0302", "\u0301\u0302\u0302", false},  // nothing left: the text itself
  };
  for (auto& row : table) {
    row.left_id = add(row.left);
    row.right_id = add(row.right);
  }
  const auto words = tokenizer::parse(to_text(file));
  REQUIRE_MESSAGE(words.has_value(), words.error().message);
  const auto map = token_classes(*words, words->vocab_size());
  for (const auto& row : table) {
    CAPTURE(row.left);
    CAPTURE(row.right);
    CHECK((map.class_of[row.left_id] == map.class_of[row.right_id]) == row.is_same);
  }
}
