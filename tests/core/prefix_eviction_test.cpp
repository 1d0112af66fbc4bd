// Which cached block is given up, when, and where it goes.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/core/prefix_order.hpp"
#include "runtime/core/release_queue.hpp"
#include "tests/core/prefix_script.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

using moves = std::vector<block_move>;

}  // namespace

TEST_CASE("an order gives its numbers as they came, whoever left in between") {
  prefix_order order(5);
  for (const auto number : {3, 1, 4, 0}) order.push_back(number);
  order.remove(1);
  order.push_back(1);
  order.remove(3);
  CHECK(order.size() == 3);
  CHECK(order.contains(1));
  CHECK_FALSE(order.contains(3));
  for (const auto expected : {4, 0, 1}) {
    CHECK(order.front() == expected);
    order.remove(expected);
  }
  CHECK(order.size() == 0);
  order.push_back(2);
  order.clear();
  CHECK_FALSE(order.contains(2));
  order.push_back(2);
  CHECK(order.front() == 2);
}

TEST_CASE("who was released first is evicted first, its deepest block first") {
  script pool(6);
  pool.compute("ab");   // 0 1
  pool.compute("xyz");  // 2 3 4
  pool.release({4, 3, 2});
  pool.release({1, 0});
  CHECK(pool.grant(1) == numbers{5});
  CHECK(pool.grant(5, 5) == numbers{4, 3, 2, 1, 0});
  CHECK(pool.pool().counters().evictions == 5);
  CHECK(pool.pool().counters().spills == 0);
}

TEST_CASE("a cached block that is hit leaves the order and comes back as its newest") {
  script pool(3);
  pool.compute("a");
  pool.compute("b");
  pool.compute("c");
  pool.release({0});
  pool.release({1});
  pool.release({2});
  CHECK(pool.look_up("a").blocks == numbers{0});
  CHECK(pool.grant(1, 1) == numbers{1});
  pool.release({0});
  CHECK(pool.grant(2, 2) == numbers{2, 0});
}

TEST_CASE("cached blocks are given up for a named shortfall only, and no more than it takes") {
  script pool(6);
  pool.compute("abcd");
  pool.release({3, 2, 1, 0});
  CHECK(pool.grant(3) == numbers{4, 5});  // none without being told
  CHECK(pool.pool().owed_blocks() == 1);
  CHECK(pool.pool().cached_blocks() == 4);
  CHECK(pool.grant(0, 3) == numbers{3});  // one is owed
  CHECK(pool.grant(0, 3) == numbers{});
  CHECK(pool.grant(3, 2) == numbers{2, 1});  // two may go
  CHECK(pool.pool().owed_blocks() == 1);
  CHECK(pool.release({4}) == numbers{4});
  CHECK(pool.pool().cached_blocks() == 1);
  CHECK(pool.pool().counters().evictions == 3);
  CHECK(pool.grant(9, 9) == numbers{0});  // there are no more
}

TEST_CASE("what a message hits is not evicted by it") {
  script pool(2);
  pool.compute("ab");
  pool.release({1, 0});
  kv_reserve want{.rank = {1}, .blocks = 2, .evict = 2};
  want.lookups = {lookup_of("ab")};
  want.lookups[0].keys.pop_back();
  const auto granted = pool.pool().reserve(want);
  CHECK(numbers_of(granted.hits[0].blocks) == numbers{0});
  CHECK(numbers_of(granted.blocks) == numbers{1});
}

TEST_CASE("an evicted block goes to the host tier, and its oldest place is forgotten for it") {
  script pool(4, 2);
  pool.compute("abc");
  pool.release({2, 1, 0});
  CHECK(pool.grant(2, 1) == numbers{3, 2});
  CHECK(pool.moves() == moves{{{2}, 0, true}});
  CHECK(pool.grant(2, 2) == numbers{1, 0});
  CHECK(pool.moves() == moves{{{1}, 1, true}, {{0}, 0, true}});
  CHECK(pool.pool().host_entries() == 2);
  CHECK(pool.pool().counters().spills == 3);
  pool.release({3, 2, 1});
  CHECK(pool.look_up("abc").blocks == numbers{1, 2});  // "abc" itself was the oldest
  CHECK(pool.moves() == moves{{{1}, 0, false}, {{2}, 1, false}});
  CHECK(pool.pool().counters().host_hits == 2);
  CHECK(pool.pool().host_entries() == 0);
}

TEST_CASE("a prefix that came back is a block like any other, and its place is free") {
  script pool(3, 1);
  pool.compute("a");
  pool.release({0});
  CHECK(pool.grant(3, 1) == numbers{1, 2, 0});
  pool.release({1, 2});
  CHECK(pool.look_up("a").blocks == numbers{2});
  CHECK(pool.look_up("a").blocks == numbers{2});  // no second move
  CHECK(pool.moves().empty());
  pool.publish({0}, "b");
  pool.release({0, 2, 2});
  CHECK(pool.pool().cached_blocks() == 2);
  CHECK(pool.grant(2, 1) == numbers{1, 0});
  CHECK(pool.moves() == moves{{{0}, 0, true}});
}

TEST_CASE("in one answer a place may be read and then written again, in this order") {
  script pool(3, 1);
  pool.compute("a");
  pool.release({0});
  CHECK(pool.grant(3, 1) == numbers{1, 2, 0});  // "a" is at place 0
  pool.publish({0}, "b");
  pool.release({0, 1});
  kv_reserve want{.rank = {1}, .blocks = 1, .evict = 1};
  want.lookups = {lookup_of("a")};
  const auto granted = pool.pool().reserve(want);
  CHECK(granted.moves == moves{{{1}, 0, false}, {{0}, 0, true}});
  CHECK(numbers_of(granted.hits[0].blocks) == numbers{1});
  CHECK(numbers_of(granted.blocks) == numbers{0});
}

TEST_CASE("while all blocks are held a prefix of the host tier is a miss, and stays there") {
  script pool(2, 2);
  pool.compute("ab");
  pool.release({1, 0});
  CHECK(pool.grant(1, 1) == numbers{1});
  CHECK(pool.look_up("ab").blocks == numbers{0});
  CHECK(pool.pool().host_entries() == 1);
  CHECK(pool.pool().counters().hit_tokens == 2);
  pool.release({1});
  CHECK(pool.look_up("ab").blocks == numbers{0, 1});
}

TEST_CASE("a prefix of the host tier takes the place of cached blocks, which go there instead") {
  script pool(2, 3);
  pool.compute("ab");
  pool.release({1, 0});
  CHECK(pool.grant(2, 2) == numbers{1, 0});
  CHECK(pool.moves() == moves{{{1}, 0, true}, {{0}, 1, true}});
  pool.publish({1}, "x");
  pool.publish({0}, "xy");
  pool.release({0, 1});  // "xy" fills the pool: no block is free
  CHECK(pool.look_up("ab").blocks == numbers{0, 1});
  // A block is saved before it is overwritten, and its place may be one that was read just before.
  CHECK(pool.moves() == moves{{{0}, 2, true}, {{0}, 1, false}, {{1}, 1, true}, {{1}, 0, false}});
  pool.release({1, 0});
  CHECK(pool.look_up("xy").blocks == numbers{1, 0});
  CHECK(pool.pool().counters().host_hits == 4);
}

TEST_CASE("what comes back from a full host tier is not forgotten for what has to go there") {
  script pool(1, 1);
  pool.compute("a");
  pool.release({0});
  CHECK(pool.grant(1, 1) == numbers{0});
  pool.publish({0}, "b");
  pool.release({0});
  CHECK(pool.look_up("a").blocks == numbers{0});
  CHECK(pool.moves() == moves{{{0}, 0, false}});  // "b" is forgotten
  pool.release({0});
  CHECK(pool.look_up("b").blocks.empty());
}

TEST_CASE("a prefix computed again takes its name back from the host tier when it has settled") {
  script pool(2, 2);
  pool.compute("a");
  pool.release({0});
  CHECK(pool.grant(2, 1) == numbers{1, 0});
  pool.publish({1}, "a", {4});
  CHECK(pool.pool().host_entries() == 1);  // the step may yet fail
  pool.publish({1}, "a");
  CHECK(pool.pool().host_entries() == 0);
  CHECK(pool.look_up("a").blocks == numbers{1});
  CHECK(pool.moves().empty());
}

TEST_CASE("deferred release leaves the order of eviction as immediate release does [I21]") {
  script now(6), later(6);
  release_queue queue({1});
  for (auto* pool : {&now, &later}) {
    pool->compute("abc");
    pool->compute("xyz");
  }
  now.release({2, 1, 0});
  now.release({5, 4, 3});
  queue.defer({{7}, {{0}, {1}, {2}}, {}});
  queue.defer({{8}, {{3}, {4}, {5}}, {}});
  CHECK(later.release(numbers_of(queue.drain({8}).blocks)) == numbers{});
  const numbers deepest_first{2, 1, 0, 5, 4, 3};
  CHECK(now.grant(6, 6) == deepest_first);
  CHECK(later.grant(6, 6) == deepest_first);
}

TEST_CASE("whatever the fences, who retired first is evicted first, from its end [I21]") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    constexpr std::int32_t count = 24;
    script now(count), later(count);
    release_queue queue({1});
    std::vector<numbers> live;
    for (std::int32_t i = 0, block = 0; block < count; ++i) {
      const auto words = random_words(seed, static_cast<std::uint32_t>(i), draw_purpose::target, 0);
      const std::string text(1 + words[0] % 4, static_cast<char>('a' + i));
      const auto rest = static_cast<std::size_t>(count - block);
      live.push_back(now.compute(text.substr(0, rest)));
      CHECK(later.compute(text.substr(0, rest)) == live.back());
      block += static_cast<std::int32_t>(live.back().size());
    }
    std::uint64_t settled = 0;
    for (std::uint32_t i = 0; !live.empty(); ++i) {
      const auto words = random_words(seed, i, draw_purpose::accept, 0);
      const auto gone = live.begin() + static_cast<std::ptrdiff_t>(words[0] % live.size());
      now.release({gone->rbegin(), gone->rend()});
      lease_return::parked entry{{settled + words[1] % 4}, {}, {}};
      for (const auto block : *gone) entry.blocks.push_back({block});
      queue.defer(std::move(entry));
      live.erase(gone);
      settled += words[2] % 2;
      later.release(numbers_of(queue.drain({settled}).blocks));
    }
    later.release(numbers_of(queue.drain({settled + 4}).blocks));
    CHECK(now.grant(count, count) == later.grant(count, count));
  }
}
