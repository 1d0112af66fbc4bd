#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "kernels/sampling/keep_candidates.hpp"

using namespace deepinfer::kernels;

TEST_CASE("keys order by falling x, then rising id, and give both back") {
  const float values[] = {-1e38f, -2.0f, -1e-40f, 0.0f, 1e-40f, 0.5f, 2.0f, 3e38f};
  for (std::size_t i = 0; i + 1 < std::size(values); ++i)
    CHECK(rank_key(values[i + 1], 9) < rank_key(values[i], 3));
  CHECK(rank_key(1.5f, 3) < rank_key(1.5f, 4));
  CHECK(rank_key(-0.0f, 3) < rank_key(0.0f, 4));  // equal values: the lower id first
  for (const float x : values) {
    CHECK(x_of(rank_key(x, 1234567)) == x);
    CHECK(id_of(rank_key(x, 1234567)) == 1234567);
  }
}

TEST_CASE("ids at -inf are no candidates, and the first ranks come out sorted") {
  const float none = -std::numeric_limits<float>::infinity();
  const float x[] = {1.0f, none, 3.0f, 3.0f, none, 2.0f};
  std::uint64_t keys[6];
  REQUIRE(list_candidates(x, 6, keys) == 4);
  rank_first(keys, 4, 3);
  CHECK(id_of(keys[0]) == 2);
  CHECK(id_of(keys[1]) == 3);
  CHECK(id_of(keys[2]) == 5);
  rank_first(keys, 4, 9);
  CHECK(id_of(keys[3]) == 0);
}

TEST_CASE("what the cuts keep does not depend on the order of the keys") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint64_t> keys;
    const auto size = 1 + static_cast<std::int32_t>(random() % 300);
    for (std::int32_t id = 0; id < size; ++id)  // few values: many ties
      keys.push_back(rank_key(-static_cast<float>(id == 0 ? 0 : random() % 12) / 4, id));
    slot_sampling s;
    s.top_k = static_cast<std::int32_t>(random() % 400);
    s.top_p = static_cast<float>(1 + random() % 100) / 100.0f;
    s.min_p = static_cast<float>(random() % 50) / 100.0f;
    std::vector<std::uint64_t> first;
    for (int order = 0; order < 3; ++order) {
      auto shuffled = keys;
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      shuffled.resize(static_cast<std::size_t>(keep_candidates_ref(s, shuffled.data(), size)));
      std::sort(shuffled.begin(), shuffled.end());
      if (order == 0) first = shuffled;
      CHECK(shuffled == first);
    }
    REQUIRE(!first.empty());
    std::sort(keys.begin(), keys.end());
    CHECK(std::equal(first.begin(), first.end(), keys.begin()));  // a run of the first ranks
  }
}
