// What a router knows of a prompt that nobody has tokenized.
#include "runtime/core/prompt_outline.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace deepinfer;

TEST_CASE("an outline has a fingerprint for each whole stride, equal as far as prompts are") {
  generate_request one;
  one.ids.emplace(3 * stride_ids + 5, 17);
  auto two = one;
  (*two.ids)[2 * stride_ids] = 18;
  const auto a = outline_of(one);
  const auto b = outline_of(two);
  CHECK(a.tokens == static_cast<std::int64_t>(3 * stride_ids + 5));
  REQUIRE(a.prefix.size() == 3);
  REQUIRE(b.prefix.size() == 3);
  CHECK(a.prefix[0] == b.prefix[0]);
  CHECK(a.prefix[0] != a.prefix[1]);
  CHECK(a.prefix[1] == b.prefix[1]);
  CHECK(a.prefix[2] != b.prefix[2]);
  auto salted = one;
  salted.cache_salt = "of somebody";
  CHECK(outline_of(salted).prefix[0] != a.prefix[0]);
  generate_request text;
  text.text = std::string(stride_bytes * 2 - 1, 'x');
  CHECK(outline_of(text).prefix.size() == 1);
  CHECK(outline_of(text).tokens == 128);
  generate_request chat;
  chat.chat = *text.text;
  CHECK(outline_of(chat).prefix[0] != outline_of(text).prefix[0]);
  text.text = std::string(stride_bytes * (strides_most + 9), 'x');
  CHECK(outline_of(text).prefix.size() == strides_most);
  CHECK(outline_of({}).prefix.empty());
  for (const auto& it : {one, text, chat, generate_request{}})
    CHECK(about_tokens(it) == outline_of(it).tokens);
}
