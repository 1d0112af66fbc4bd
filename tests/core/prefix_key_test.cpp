#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/core/prefix_key.hpp"

using namespace deepinfer;

namespace {

using ids = std::vector<token_id>;

std::uint64_t random_word(std::uint64_t seed, std::uint32_t i) {
  const auto words = random_words(seed, i, draw_purpose::target, 0);
  return std::uint64_t{words[0]} << 32 | words[1];
}

/// How often each bit of a lane flipped, over many changes of one input bit.
struct flips {
  std::vector<std::int32_t> of_bit = std::vector<std::int32_t>(64);
  std::int32_t tries = 0;
  void add(std::uint64_t before, std::uint64_t after) {
    ++tries;
    for (std::size_t bit = 0; bit < 64; ++bit)
      of_bit[bit] += static_cast<std::int32_t>((before ^ after) >> bit & 1);
  }
  /// Each bit flips half of the time: within five standard deviations of a fair coin.
  bool is_fair() const {
    const auto [least, most] = std::ranges::minmax(of_bit);
    const double margin = 2.5 * std::sqrt(static_cast<double>(tries));
    return least > tries / 2 - margin && most < tries / 2 + margin;
  }
};

}  // namespace

TEST_CASE("a key says salt, ids, their order and their division into blocks") {
  const auto root = prefix_root(0);
  const auto key = prefix_next(root, ids{1, 2, 3, 4});
  CHECK(prefix_next(root, ids{1, 2, 3, 4}) == key);
  CHECK(prefix_root(1) != root);
  CHECK(prefix_next(prefix_root(1), ids{1, 2, 3, 4}) != key);
  CHECK(prefix_next(root, ids{1, 2, 4, 3}) != key);
  CHECK(prefix_next(root, ids{1, 2, 3}) != key);
  CHECK(prefix_next(prefix_next(root, ids{1, 2}), ids{3, 4}) != key);
  CHECK(prefix_next(prefix_next(root, ids{1}), ids{2, 3, 4}) !=
        prefix_next(prefix_next(root, ids{1, 2, 3}), ids{4}));
  CHECK(prefix_next(root, ids{0}) != root);
  CHECK(prefix_next(root, ids{0, 0}) != prefix_next(root, ids{0}));
}

TEST_CASE("salts of other texts are other numbers, and none is 0") {
  std::vector<std::uint64_t> salts{0};
  // Texts that begin alike, hold zeros, or cross the border of a word.
  for (std::size_t size = 0; size < 20; ++size)
    for (const char c : {'\0', 'a', '\xff'}) {
      salts.push_back(prefix_salt(std::string(size, 'x') + c));
      salts.push_back(prefix_salt(std::string(size, 'x') + c + '\0'));
    }
  CHECK(prefix_salt("tenant") == prefix_salt("tenant"));
  std::ranges::sort(salts);
  CHECK(std::ranges::adjacent_find(salts) == salts.end());
}

TEST_CASE("keys are the same on every machine and in every version") {
  // Made by a second implementation, in Python.
  CHECK(prefix_root(0) == prefix_key{0x2CB0F69F4ABEA221u, 0xB27B5034F0BD1A03u});
  CHECK(prefix_next(prefix_root(7), ids{1, 2, 3, 129279}) ==
        prefix_key{0x604AB545A79CDCCEu, 0x565A4E38C0B5F532u});
}

TEST_CASE("a changed bit of an id flips half of each lane, a changed bit of the parent half of its "
          "own lane") {
  std::vector<flips> of_ids(2), of_parent(2);
  for (std::uint32_t i = 0; i < 400; ++i) {
    const prefix_key parent{random_word(1, i), random_word(2, i)};
    ids block(4);
    for (std::size_t j = 0; j < 4; ++j)
      block[j] = static_cast<token_id>(random_word(3 + j, i) & 0x7FFFFFFF);
    const auto key = prefix_next(parent, block);
    for (std::size_t j = 0; j < 4; ++j)
      for (int bit = 0; bit < 31; ++bit) {
        auto other = block;
        other[j] ^= 1 << bit;
        const auto changed = prefix_next(parent, other);
        of_ids[0].add(key.high, changed.high);
        of_ids[1].add(key.low, changed.low);
      }
    for (int bit = 0; bit < 64; ++bit) {
      const auto high = prefix_next({parent.high ^ 1ull << bit, parent.low}, block);
      const auto low = prefix_next({parent.high, parent.low ^ 1ull << bit}, block);
      CHECK(high.low == key.low);
      CHECK(low.high == key.high);
      of_parent[0].add(key.high, high.high);
      of_parent[1].add(key.low, low.low);
    }
  }
  for (std::size_t lane = 0; lane < 2; ++lane) {
    CHECK(of_ids[lane].is_fair());
    CHECK(of_parent[lane].is_fair());
  }
}

TEST_CASE("the lanes differ from each other, also over the same words") {
  int equal = 0;
  for (std::uint32_t i = 0; i < 4000; ++i) {
    const auto word = random_word(1, i);
    const auto key = prefix_next({word, word}, ids{static_cast<token_id>(i)});
    equal += std::popcount(~(key.high ^ key.low));
  }
  CHECK(equal > 4000 * 31);  // each bit agrees half of the time
  CHECK(equal < 4000 * 33);
}

TEST_CASE("a million blocks, of random ids, of numbers in sequence and in one chain, have keys "
          "that differ in either lane") {
  std::vector<std::uint64_t> high, low;
  const auto add = [&](prefix_key key) {
    high.push_back(key.high);
    low.push_back(key.low);
  };
  const auto root = prefix_root(0);
  auto chain = root;
  for (std::uint32_t i = 0; i < 350000; ++i) {
    const auto word = random_word(5, i);
    add(prefix_next(root, ids{static_cast<token_id>(word & 0x1FFFF),
                              static_cast<token_id>(word >> 20 & 0x1FFFF),
                              static_cast<token_id>(word >> 40 & 0x1FFFF), -1}));
    add(prefix_next(root, ids{0, 0, 1, static_cast<token_id>(i)}));
    add(prefix_root(i));
    chain = prefix_next(chain, ids{7, 7, 7, 7});
    add(chain);
  }
  for (auto* lane : {&high, &low}) {
    std::ranges::sort(*lane);
    CHECK(std::ranges::adjacent_find(*lane) == lane->end());
  }
}

TEST_CASE("over equal blocks other beginnings keep other keys, in each lane alone") {
  const ids block{1, 2, 3, 4};
  std::vector<std::uint64_t> high, low;
  for (std::uint64_t i = 0; i < 100000; ++i) {  // parents that differ in a few low bits, one lane
    high.push_back(prefix_next({i, 42}, block).high);
    low.push_back(prefix_next({42, i}, block).low);
  }
  for (auto* lane : {&high, &low}) {
    std::ranges::sort(*lane);
    CHECK(std::ranges::adjacent_find(*lane) == lane->end());
  }
}
