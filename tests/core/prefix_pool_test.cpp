// What a pool says of prefixes, case by case; prefix_eviction_test.cpp: what it gives up for them.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/core/prefix_key.hpp"
#include "tests/core/death.hpp"
#include "tests/core/prefix_script.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

TEST_CASE("a published block is shared by who begins alike, and the walk ends at the first miss") {
  script pool(8);
  pool.compute("abc");
  CHECK(pool.look_up("abc").blocks == numbers{0, 1, 2});
  CHECK(pool.look_up("abx").blocks == numbers{0, 1});
  CHECK(pool.look_up("xbc").blocks == numbers{});
  CHECK(pool.pool().references({0}) == 3);
  CHECK(pool.pool().references({2}) == 2);
  pool.release({2, 1, 0});
  pool.release({2, 1, 0});
  CHECK(pool.pool().cached_blocks() == 1);
  pool.release({1, 0});
  CHECK(pool.pool().cached_blocks() == 3);
  CHECK(pool.pool().held_blocks() == 0);
}

TEST_CASE("every lookup is answered in order, with its sequence and epoch, also without blocks") {
  script pool(4);
  pool.compute("a");
  kv_reserve want{.rank = {1}};
  for (const auto* text : {"b", "a", ""}) {
    want.lookups.push_back(lookup_of(text));
    want.lookups.back().sequence = {want.lookups.size()};
    want.lookups.back().epoch = static_cast<std::uint32_t>(10 + want.lookups.size());
  }
  const auto granted = pool.pool().reserve(want);
  CHECK_FALSE(granted.is_empty());
  REQUIRE(granted.hits.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(granted.hits[i].sequence == seq_id{i + 1});
    CHECK(granted.hits[i].epoch == 11 + i);
    CHECK(granted.hits[i].blocks.size() == (i == 1 ? 1 : 0));
  }
}

TEST_CASE("names given in a message are there for its lookups, those taken back are not") {
  script pool(8);
  pool.grant(3);
  kv_reserve want{.rank = {1}};
  add_entry(want.publish, {0}, "a", {5});
  add_entry(want.publish, {1}, "ab", {6});
  add_entry(want.publish, {2}, "x", {6});
  want.retract = {{6}};
  want.lookups = {lookup_of("ab"), lookup_of("x")};
  const auto granted = pool.pool().reserve(want);
  CHECK(granted.hits[0].blocks == std::vector<block_id>{{0}});
  CHECK(granted.hits[1].blocks.empty());
  pool.pool().check_invariants();
}

TEST_CASE("a hit says which launched steps its blocks wait for, until they are confirmed [I52]") {
  script pool(8);
  pool.grant(4);
  pool.publish({0}, "a");
  pool.publish({1}, "ab", {4});
  pool.publish({2}, "abc", {6});
  pool.publish({3}, "abcd", {5});
  CHECK(pool.look_up("a").pending_first == step_id{});
  CHECK(pool.look_up("ab").pending_first == step_id{4});
  CHECK(pool.look_up("ab").pending_last == step_id{4});
  CHECK(pool.look_up("abcd").pending_first == step_id{4});
  CHECK(pool.look_up("abcd").pending_last == step_id{6});
  pool.publish({1}, "ab");
  CHECK(pool.look_up("abcd").pending_first == step_id{5});
  pool.publish({2}, "abc");
  CHECK(pool.look_up("abcd").pending_last == step_id{5});
  pool.publish({2}, "abc", {9});  // what has settled stays so
  CHECK(pool.look_up("abc").pending_last == step_id{});
}

TEST_CASE("a block that nobody confirmed is forgotten with its last holder [I48]") {
  script pool(4);
  pool.grant(2);
  pool.publish({0}, "a", {4});
  CHECK(pool.look_up("a").blocks == numbers{0});
  pool.release({0});
  CHECK(pool.look_up("a").blocks == numbers{0});  // one still holds it
  pool.release({0, 0});
  CHECK(pool.pool().cached_blocks() == 0);
  CHECK(pool.look_up("a").blocks == numbers{});
  CHECK(pool.pool().free_blocks() == 3);
}

TEST_CASE("a failed step takes its names along and nothing else [I49]") {
  script pool(8);
  pool.grant(4);
  pool.publish({0}, "a");
  pool.publish({1}, "ab", {4});
  pool.publish({2}, "abc", {5});
  pool.publish({3}, "x", {4});
  CHECK(pool.look_up("abc").blocks == numbers{0, 1, 2});
  pool.retract({4});
  CHECK(pool.look_up("abc").blocks == numbers{0});
  CHECK(pool.look_up("x").blocks == numbers{});
  CHECK(pool.pool().references({1}) == 2);  // who holds it, holds it
  pool.publish({2}, "abc");                 // step 5 was another one
  pool.release({2, 1, 0, 2, 1, 0, 0, 3});
  CHECK(pool.pool().cached_blocks() == 2);
  CHECK(pool.pool().free_blocks() == 6);
}

TEST_CASE("a block completed again by a later step waits for that one") {
  script pool(4);
  pool.grant(1);
  pool.publish({0}, "a", {4});
  pool.publish({0}, "a", {6});
  pool.publish({0}, "a", {5});
  pool.retract({4});
  CHECK(pool.look_up("a").pending_first == step_id{6});
}

TEST_CASE("of two blocks with one key the first keeps the name, the second stays its holder's own "
          "[I51]") {
  script pool(4);
  pool.grant(2);
  pool.publish({0}, "a", {4});
  pool.publish({1}, "a", {4});
  CHECK(pool.look_up("a").blocks == numbers{0});
  CHECK(pool.pool().references({1}) == 1);
  pool.publish({0}, "a");
  pool.publish({1}, "a");
  pool.release({1});
  CHECK(pool.pool().free_blocks() == 3);
  pool.release({0, 0});
  CHECK(pool.pool().cached_blocks() == 1);
  CHECK(pool.look_up("a").blocks == numbers{0});
}

TEST_CASE("a block whose rival was forgotten is named when it is confirmed [I51]") {
  script pool(4);
  pool.grant(2);
  pool.publish({0}, "a", {4});
  pool.publish({1}, "a", {5});
  pool.release({0});
  pool.publish({1}, "a");
  CHECK(pool.look_up("a").blocks == numbers{1});
}

TEST_CASE("an equal key with other ids is a miss and is counted [I48]") {
  script pool(4);
  pool.compute("ab");
  auto forged = lookup_of("ab");
  forged.ids =
    std::make_shared<const std::vector<token_id>>(std::vector<token_id>{'a', 'x', 'b', 'b'});
  kv_reserve want{.rank = {1}};
  want.lookups = {forged};
  CHECK(pool.pool().reserve(want).hits[0].blocks.empty());
  CHECK(pool.pool().counters().other_ids == 1);
  CHECK(pool.pool().references({0}) == 1);
}

TEST_CASE("hits and queries count tokens") {
  script pool(8);
  pool.compute("abc");
  const auto before = pool.pool().counters();
  CHECK(before.query_tokens == 6);
  CHECK(before.hit_tokens == 0);
  pool.look_up("abxy");
  pool.look_up("");
  CHECK(pool.pool().counters().query_tokens == before.query_tokens + 8);
  CHECK(pool.pool().counters().hit_tokens == 4);
}

TEST_CASE("a flush forgets every name: cached blocks are free and pay what is owed, held ones are "
          "free when they are released [I12]") {
  script pool(4);
  pool.compute("ab");
  pool.release({1, 0});
  pool.compute("x");
  CHECK(pool.grant(3) == numbers{3});
  CHECK(pool.pool().owed_blocks() == 2);
  const auto paid = pool.pool().flush();
  pool.pool().check_invariants();
  CHECK(paid.blocks == std::vector<block_id>{{0}, {1}});
  CHECK(pool.pool().owed_blocks() == 0);
  CHECK(pool.look_up("x").blocks == numbers{});
  pool.release({2});
  CHECK(pool.pool().free_blocks() == 1);
  CHECK(pool.pool().cached_blocks() == 0);
}

TEST_CASE("a reset pool has no prefixes, and its counts go on") {
  script pool(4, 2);
  pool.compute("abc");
  pool.release({2, 1, 0});
  pool.grant(2, 1);
  pool.pool().reset();
  pool.pool().check_invariants();
  CHECK(pool.pool().free_blocks() == 4);
  CHECK(pool.pool().cached_blocks() == 0);
  CHECK(pool.pool().host_entries() == 0);
  CHECK(pool.look_up("abc").blocks == numbers{});
  CHECK(pool.pool().counters().evictions == 1);
  CHECK(pool.grant(1) == numbers{0});
}

TEST_CASE("what can't be meant is refused: names of free blocks, second names, ragged columns") {
  const auto after = [](auto&& act) {
    return death_message([&] {
      script pool(4);
      pool.compute("a");
      act(pool);
    });
  };
  CHECK(after([](script& pool) {
          pool.publish({2}, "b");
        }).find("block 2 of rank 1 was named, nobody holds it") != std::string::npos);
  CHECK(after([](script& pool) {
          pool.publish({0}, "b");
        }).find("block 0 was named twice, differently") != std::string::npos);
  CHECK(after([](script& pool) { pool.retract({0}); }).find("settled names were retracted") !=
        std::string::npos);
  CHECK(after([](script& pool) {
          kv_reserve want{.rank = {1}};
          add_entry(want.publish, {0}, "a", {});
          want.publish.ids.pop_back();
          DI_CHECK(pool.pool().reserve(want).is_empty(), "granted");
        }).find("1 blocks of 2 published with 1 ids") != std::string::npos);
  CHECK(after([](script& pool) {
          kv_reserve want{.rank = {1}};
          add_entry(want.publish, {0}, "a", {});
          want.publish.pending.clear();
          DI_CHECK(pool.pool().reserve(want).is_empty(), "granted");
        }).find("1 blocks published with 1 keys, 0 steps") != std::string::npos);
  CHECK(after([](script& pool) {
          kv_reserve want{.rank = {1}};
          want.lookups = {lookup_of("ab")};
          want.lookups[0].keys.push_back({});
          DI_CHECK(pool.pool().reserve(want).is_empty(), "granted");
        }).find("a lookup of 3 blocks of 2 with 4 ids") != std::string::npos);
  CHECK(death_message([] {
          kv_pool pool({{1}, 4, 1});
          kv_reserve want{.rank = {1}};
          want.lookups = {lookup_of("ab")};
          DI_CHECK(pool.reserve(want).is_empty(), "granted");
        }).find("a lookup of 2 blocks without a cache") != std::string::npos);
}
