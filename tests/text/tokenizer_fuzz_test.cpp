// Damaged and odd tokenizer.json files: read or refused, never worse.
#include <doctest/doctest.h>

#include "runtime/text/detokenizer.hpp"
#include "tests/support/mutate.hpp"
#include "tests/text/text_fixtures.hpp"

using namespace deepinfer;

namespace {

constexpr int mutants_each = 12'000;

/// The bytes, the merges among them, and the stages of DeepSeek's split with its added tokens.
std::string small_deepseek_json() {
  auto small = read_json_file(DI_SOURCE_DIR "/tests/golden/model/v41-a-plain/tokenizer.json");
  auto tiny = read_json_file(DI_SOURCE_DIR "/examples/models/tiny-v41/tokenizer.json");
  REQUIRE(small.has_value());
  REQUIRE(tiny.has_value());
  for (const auto* key : {"pre_tokenizer", "post_processor", "decoder", "normalizer"})
    small->as_object()[key] = tiny->at(key);
  auto& tokens = small->as_object()["added_tokens"].as_array();
  for (const auto& token : tiny->at("added_tokens").as_array())
    if (token.at("id").as_int64() > 2030) tokens.push_back(token);
  return to_text(*small);
}

/// A mutant of the whole file, or, one in two, of all but the vocabulary and the merges, which are
/// most of the bytes: so that the stages around the model are reached as often.
std::string mutant_of(mutator& mutate, const std::string& valid, const json::object& file) {
  if (mutate.once_in(2)) return mutate.text(valid);
  auto around = file;
  auto& model = around["model"].as_object();
  const auto large =
    "\"vocab\":" + to_text(model["vocab"]) + ",\"merges\":" + to_text(model["merges"]);
  model["vocab"] = "large";
  model.erase("merges");
  auto text = mutate.text(to_text(around));
  const std::string_view hole = "\"vocab\":\"large\"";
  if (const auto at = text.find(hole); at != std::string::npos)
    text.replace(at, hole.size(), large);
  return text;
}

struct outcome {
  int past_json = 0, opened = 0;
};

outcome survive(const std::string& valid, std::uint64_t seed) {
  const std::string sample =
    "The <｜User｜>hé said\n 12345 <bos>！漢字かな\t\xF0\x9F\x98 \xFF.<think>  ";
  REQUIRE(tokenizer::parse(valid).has_value());
  const auto file = parse_json(valid)->as_object();
  mutator mutate(seed);
  outcome counts;
  for (int number = 0; number < mutants_each; ++number) {
    CAPTURE(number);
    const auto mutant = mutant_of(mutate, valid, file);
    const auto made = tokenizer::parse(mutant);
    counts.past_json += made.has_value() || parse_json(mutant).has_value();
    if (!made) {
      REQUIRE(made.error().code == errc::bad_checkpoint);
      REQUIRE_FALSE(made.error().message.empty());
      continue;
    }
    ++counts.opened;
    for (const auto mode : {specials::off, specials::on}) {
      const auto ids = made->encode(sample, mode);
      for (const auto id : ids) REQUIRE(made->is_known(id));
      REQUIRE(is_utf8(detokenize(*made, ids)));
      REQUIRE(made->as_v41().encode(sample, mode).size() <= sample.size());
    }
  }
  return counts;
}

}  // namespace

TEST_CASE("24,000 mutants of tokenizer.json are read or refused, a fifth of them past the JSON") {
  const auto plain = read_file(DI_SOURCE_DIR "/tests/golden/model/v41-a-plain/tokenizer.json");
  REQUIRE(plain.has_value());
  const std::string bases[] = {*plain, small_deepseek_json()};
  std::uint64_t seed = 31;
  for (const auto& valid : bases) {
    const auto counts = survive(valid, seed++);
    CAPTURE(counts.past_json);
    CAPTURE(counts.opened);
    CHECK(counts.past_json >= mutants_each / 5);
    CHECK(counts.opened >= mutants_each / 10);
    CHECK(counts.opened < mutants_each * 9 / 10);
  }
}
