#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/json.hpp"
#include "runtime/core/json_grammar.hpp"
#include "tests/core/death.hpp"
#include "tests/core/json_texts.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr token_id eos = 0, pad = 1;

bool is_allowed(const std::vector<std::uint32_t>& mask, token_id id) {
  return (mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

struct world {
  explicit world(word_texts words, std::vector<token_id> more = {})
    : texts(std::move(words)),
      markers(std::move(more)),
      trie(std::make_shared<const token_trie>(texts, texts.size(), markers)),
      masks(trie),
      mask(mask_words(texts.size()), ~0u) {}

  json_matcher matcher() { return json_matcher(masks, {eos}); }

  bool advance(json_matcher& at, std::string_view text) {
    for (const char byte : text)
      if (!at.advance(texts.find(std::string_view(&byte, 1)))) return false;
    return true;
  }

  /// Advances past one token that begins what is left of `text`; a token, or nothing (-1).
  token_id advance_random(json_matcher& at, draws& random, std::string_view left) {
    std::vector<token_id> begins;
    for (token_id id = 2; id < texts.size(); ++id)
      if (!texts.bytes(id).empty() && left.starts_with(texts.bytes(id))) begins.push_back(id);
    if (begins.empty()) return -1;
    const auto id = random.one_of(begins);
    return at.advance(id) ? id : -1;
  }

  word_texts texts;
  std::vector<token_id> markers;
  std::shared_ptr<const token_trie> trie;
  json_masks masks;
  std::vector<std::uint32_t> mask;
};

/// The mask of `state`, each token tried on its own.
std::vector<std::uint32_t> tried_mask(const world& it, const json_state& state) {
  const auto& texts = it.texts;
  std::vector<std::uint32_t> mask(mask_words(texts.size()), 0);
  for (token_id id = 0; id < texts.size(); ++id) {
    if (texts.is_special(id) || texts.bytes(id).empty()) continue;
    if (std::find(it.markers.begin(), it.markers.end(), id) != it.markers.end()) continue;
    auto next = state;
    bool is_kept = true;
    for (const char byte : texts.bytes(id))
      if (is_kept) is_kept = next.step(static_cast<std::uint8_t>(byte));
    if (is_kept) mask[static_cast<std::size_t>(id) / 32] |= 1u << (id % 32);
  }
  return mask;
}

/// Allowed ids, those that open or close something three times as likely.
token_id draw_allowed(const world& it, draws& random) {
  std::vector<token_id> ids;
  for (token_id id = 0; id < it.texts.size(); ++id) {
    if (!is_allowed(it.mask, id)) continue;
    const bool is_structure = it.texts.bytes(id).find_first_of("{}[]\",:") != std::string::npos;
    ids.insert(ids.end(), is_structure ? 3 : 1, id);
  }
  return ids.empty() ? -1 : random.one_of(ids);
}

void check_masks(world& it, draws& random, int walks, int steps) {
  std::size_t deepest = 0;
  for (int walk = 0; walk < walks; ++walk) {
    auto matcher = it.matcher();
    // Some walks start deep, where closing tokens see many containers and opening ones the limit.
    std::string start;
    if (walk % 3 == 1)
      for (auto n = random.below(66); n > 0; --n)
        start += start.empty() || random.chance(50) ? "{\"\":" : "[";
    if (walk % 3 == 2) start = "{\"\":" + std::string(random.below(41), '9');
    if (!start.empty()) it.advance(matcher, start);
    for (int step = 0; step < steps && !matcher.has_ended(); ++step) {
      deepest = std::max(deepest, std::size_t{matcher.state().depth});
      std::fill(it.mask.begin(), it.mask.end(), ~0u);
      REQUIRE(matcher.fill_mask(it.mask));
      REQUIRE(it.mask == tried_mask(it, matcher.state()));
      REQUIRE(matcher.advance(draw_allowed(it, random)));
    }
  }
  CHECK(deepest > 60);
}

/// The id of the byte that leads to the end soonest, or nearly.
token_id ender(const world& it) {
  for (const char byte : std::string("\"}]:0\\udcrelsa\x80\x90\xA0{"))
    if (const auto id = it.texts.find(std::string_view(&byte, 1)); is_allowed(it.mask, id))
      return id;
  return -1;
}

}  // namespace

TEST_CASE("a mask allows exactly the tokens that the grammar takes, one by one") {
  draws random(11);
  for (int n = 0; n < 4; ++n) {
    world it(random_vocabulary(random, 400));
    check_masks(it, random, 60, 30);
  }
  world tiny(tiny_vocabulary(), tiny_markers());
  check_masks(tiny, random, 60, 30);
  // Few containers are seen by a token, so that states which differ further down are alike.
  std::vector<std::string> words{"<eos>", "<pad>"};
  for (int byte = 0; byte < 256; ++byte) words.emplace_back(1, static_cast<char>(byte));
  for (const char* word :
       {"]]", "}]", "]}", "}}", "\"}]", "\"]}", "[[", "{\"", "\"}}", "0]]", "]],1", "}},\"\":"})
    words.emplace_back(word);
  world few(word_texts(std::move(words), 2));
  check_masks(few, random, 600, 30);
}

TEST_CASE("a mask's id is taken, any other is refused and changes nothing") {
  draws random(12);
  world it(random_vocabulary(random, 200));
  for (int walk = 0; walk < 40; ++walk) {
    auto matcher = it.matcher();
    for (int step = 0; step < 15; ++step) {
      matcher.fill_mask(it.mask);
      const auto before = matcher.state();
      for (token_id id = -3; id < it.texts.size() + 3; ++id) {
        const bool is_id = id >= 0 && id < it.texts.size();
        const bool may = is_id && is_allowed(it.mask, id);
        REQUIRE(matcher.advance(id) == may);
        if (may) matcher.rewind(1);
        REQUIRE(matcher.state() == before);
      }
      matcher.advance(draw_allowed(it, random));
    }
  }
}

TEST_CASE("the second mask of a state looks at no node of the trie") {
  world it(tiny_vocabulary(), tiny_markers());
  const auto cost = [&](json_matcher& at) {
    const auto before = it.masks.visited_nodes();
    at.fill_mask(it.mask);
    return it.masks.visited_nodes() - before;
  };
  const std::string text = "{\"ab\": [1, {\"c\": \"xy\", \"d\": tru";
  auto first = it.matcher(), second = it.matcher();
  cost(first);
  for (const char byte : text) {
    REQUIRE(it.advance(first, {&byte, 1}));
    cost(first);
  }
  CHECK(it.masks.visited_nodes() > 0);
  for (const char byte : text) {
    CHECK(cost(second) == 0);
    REQUIRE(it.advance(second, {&byte, 1}));
  }
  // A string of another length, elsewhere in the same containers, is the same state.
  auto third = it.matcher();
  REQUIRE(it.advance(third, "{\"other\": [\"\", {\"c\": \"longer than before"));
  CHECK(cost(third) == 0);
  // Other containers below the top one: only what closes the string and goes on is looked at.
  const auto masks = it.masks.masks();
  const auto whole = static_cast<std::int64_t>(it.trie->nodes().size());
  auto fourth = it.matcher();
  REQUIRE(it.advance(fourth, "{\"other\":{\"c\":{\"d\":\"and"));
  CHECK(cost(fourth) < whole / 20);
  CHECK(it.masks.masks() == masks);
}

TEST_CASE("a walk along masks ends in one JSON object, and only end ids follow it") {
  draws random(13);
  std::vector<world> worlds;
  worlds.emplace_back(random_vocabulary(random, 500));
  worlds.emplace_back(tiny_vocabulary(), tiny_markers());
  for (auto& it : worlds)
    for (int walk = 0; walk < 300; ++walk) {
      auto matcher = it.matcher();
      std::string text;
      const auto wander = random.below(60);
      std::uint64_t step = 0;
      for (; !matcher.has_ended() && step < 1000; ++step) {
        REQUIRE(matcher.fill_mask(it.mask));
        const auto id = step < wander ? draw_allowed(it, random) : ender(it);
        REQUIRE(matcher.advance(id));
        text += it.texts.bytes(id);
      }
      CAPTURE(text);
      REQUIRE(matcher.has_ended());
      const auto parsed = parse_json(text);
      REQUIRE(parsed.has_value());
      CHECK(parsed->is_object());
      REQUIRE(matcher.fill_mask(it.mask));
      for (token_id id = 0; id < it.texts.size(); ++id)
        REQUIRE(is_allowed(it.mask, id) == (id == eos));
    }
}

TEST_CASE("an object is accepted however it is split into tokens, and rewinding it is exact") {
  draws random(14);
  world it(random_vocabulary(random, 500));
  for (int n = 0; n < 150; ++n) {
    const auto text = random_object(random);
    CAPTURE(text);
    auto matcher = it.matcher();
    std::vector<json_state> states{matcher.state()};
    std::vector<token_id> ids;
    for (std::size_t read = 0; read < text.size();) {
      const auto id = it.advance_random(matcher, random, std::string_view(text).substr(read));
      REQUIRE(id >= 0);
      ids.push_back(id);
      states.push_back(matcher.state());
      read += it.texts.bytes(id).size();
      // Back some ids, along them again.
      const auto most = std::min<std::size_t>(ids.size(), grammar_rewind_limit);
      const auto back = static_cast<std::size_t>(random.below(most + 1));
      matcher.rewind(static_cast<std::int32_t>(back));
      for (auto i = ids.size() - back; i < ids.size(); ++i) {
        REQUIRE(matcher.state() == states[i]);
        REQUIRE(matcher.advance(ids[i]));
      }
      REQUIRE(matcher.state() == states.back());
    }
    CHECK(matcher.has_ended());
  }
}

TEST_CASE("end ids follow the object any number of times, and can be taken back like others") {
  draws random(15);
  world it(random_vocabulary(random, 10));
  json_matcher matcher(it.masks, {eos, it.texts.find("a"), it.texts.size(), -1});
  CHECK_FALSE(matcher.advance(eos));
  REQUIRE(it.advance(matcher, "{}"));
  CHECK(matcher.has_ended());
  REQUIRE(it.texts.size() % 32 != 0);
  CHECK(matcher.fill_mask(it.mask));
  for (token_id id = 0; id < static_cast<token_id>(32 * it.mask.size()); ++id)
    CHECK(is_allowed(it.mask, id) == (id == eos || id == it.texts.find("a")));
  CHECK_FALSE(matcher.advance(pad));
  CHECK_FALSE(it.advance(matcher, " "));
  CHECK(matcher.advance(eos));
  CHECK(matcher.advance(it.texts.find("a")));
  CHECK(matcher.has_ended());
  matcher.rewind(3);
  CHECK_FALSE(matcher.has_ended());
  CHECK(it.advance(matcher, "\"a\":1}"));
  CHECK(matcher.has_ended());
}

TEST_CASE("rewinding reaches back as far as promised, and no further") {
  draws random(16);
  world it(random_vocabulary(random, 10));
  auto matcher = it.matcher();
  it.advance(matcher, "{\"");
  it.advance(matcher, std::string(200, 'x'));
  matcher.rewind(40);
  CHECK(death_message([&] { matcher.rewind(25); }).find("25 ids taken back of 24") !=
        std::string::npos);
  CHECK(death_message([&] { matcher.rewind(-1); }).find("-1 ids") != std::string::npos);
  matcher.rewind(24);
  it.advance(matcher, "\":");
  matcher.rewind(2);
  CHECK(matcher.state().is_key);
  CHECK(matcher.state().place == json_place::text);
}

TEST_CASE("a state that no token leads out of is a dead end with an empty mask") {
  world it(word_texts({"<eos>", "<pad>", "{", "\"", "}", "x\"}", "{\"a\":t"}, 2));
  json_matcher matcher(it.masks, {eos});
  REQUIRE(matcher.advance(it.texts.find("{")));
  REQUIRE(matcher.advance(it.texts.find("\"")));
  CHECK(matcher.fill_mask(it.mask));
  REQUIRE(matcher.advance(it.texts.find("\"")));  // a colon would have to follow
  for (int n = 0; n < 2; ++n) {
    std::fill(it.mask.begin(), it.mask.end(), ~0u);
    CHECK_FALSE(matcher.fill_mask(it.mask));
    CHECK(it.mask == std::vector<std::uint32_t>{0});
  }
  json_matcher endless(it.masks, {});
  REQUIRE(endless.advance(it.texts.find("{")));
  REQUIRE(endless.advance(it.texts.find("}")));
  CHECK_FALSE(endless.fill_mask(it.mask));
  CHECK(it.mask == std::vector<std::uint32_t>{0});

  world closing(word_texts({"<eos>", "<pad>", "{", "}"}, 2));
  json_matcher narrow(closing.masks, {eos});
  for (const std::uint32_t only : {1u << 2, 1u << 3, 1u << eos}) {
    CHECK(narrow.fill_mask(closing.mask));
    CHECK(closing.mask == std::vector<std::uint32_t>{only});
    narrow.advance(only == 1u << 2 ? 2 : 3);
  }
}

TEST_CASE("what is remembered of masks is bounded, and forgetting changes none") {
  draws random(17);
  auto words = std::vector<std::string>{"<eos>", "<pad>"};
  for (int byte = 0; byte < 256; ++byte) words.emplace_back(1, static_cast<char>(byte));
  words.emplace_back(20, ' ');
  words.emplace_back(40, '1');
  words.emplace_back(64, '[');
  words.push_back("\"" + std::string(64, ']'));
  words.push_back("1" + std::string(64, '}'));
  world it(word_texts(std::move(words), 2));
  std::size_t most_masks = 0, forgotten_masks = 0, forgotten_tails = 0, tails = 0;
  for (int walk = 0; walk < 2500; ++walk) {
    auto matcher = it.matcher();
    std::string text = "{\"\":";
    for (auto n = random.below(60); n > 0; --n) text += random.chance(50) ? "{\"\":" : "[";
    REQUIRE(it.advance(matcher, text + "[" + std::string(random.below(20), ' ')));
    for (const char* more : {"", "1", "1", "1", "1", ",", "\""}) {
      REQUIRE(it.advance(matcher, more));
      const auto masks_before = it.masks.masks();
      const auto tails_before = it.masks.tails();
      REQUIRE(matcher.fill_mask(it.mask));
      if (walk % 20 == 0) REQUIRE(it.mask == tried_mask(it, matcher.state()));
      forgotten_masks += it.masks.masks() < masks_before;
      forgotten_tails += it.masks.tails() < tails_before;
      most_masks = std::max(most_masks, it.masks.masks());
      tails = std::max(tails, it.masks.tails());
    }
  }
  CHECK(most_masks == json_masks::mask_limit);
  CHECK(forgotten_masks > 0);
  CHECK(tails == json_masks::tail_limit);
  CHECK(forgotten_tails > 0);
}

TEST_CASE("a source makes matchers of json_object and says why it makes no other") {
  draws random(18);
  const auto texts = random_vocabulary(random, 10);
  const auto trie =
    std::make_shared<const token_trie>(texts, texts.size(), std::vector<token_id>{});
  json_grammar_source source(trie, eos, {});
  sampling_params params;
  params.grammar = "json_object";
  std::string error;
  const auto matcher = source.poll({1}, params, error);
  REQUIRE(matcher);
  CHECK(error.empty());
  for (const char byte : std::string("{}"))
    CHECK(matcher->advance(texts.find(std::string_view(&byte, 1))));
  CHECK(matcher->advance(eos));

  params.ignore_eos = true;
  CHECK_FALSE(source.poll({2}, params, error));
  CHECK(error.find("no id ends the text") != std::string::npos);
  error.clear();
  params.stop_token_ids = {pad};
  CHECK(source.poll({3}, params, error));
  CHECK(error.empty());
  sampling_params plain;
  plain.grammar = "json_object";
  CHECK(json_grammar_source(trie, -1, {pad}).poll({4}, plain, error));
  CHECK(error.empty());

  params.grammar = "regex";
  CHECK_FALSE(source.poll({5}, params, error));
  CHECK(error == "grammar \"regex\" is unknown; there is json_object");
}
