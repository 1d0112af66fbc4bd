#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/core/kv_pool.hpp"
#include "runtime/core/lease.hpp"
#include "runtime/core/release_queue.hpp"
#include "tests/core/death.hpp"

using namespace deepinfer;
using deepinfer::test::death_message;

namespace {

std::vector<std::int32_t> numbers(const std::vector<block_id>& blocks) {
  std::vector<std::int32_t> out;
  for (const auto block : blocks) out.push_back(block.value);
  return out;
}

using ints = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("a fresh pool hands out 0, 1, 2, and the block freed last goes first") {
  kv_pool pool({{1}, 6, 2});
  CHECK(numbers(pool.reserve({{1}, 3, 0}).blocks) == ints{0, 1, 2});
  CHECK(pool.release({{1}, {{2}, {0}}, {}}).blocks.empty());
  CHECK(numbers(pool.reserve({{1}, 2, 0}).blocks) == ints{0, 2});
  pool.check_invariants();
}

TEST_CASE("a grant holds what is free, and a release pays the rest first [I12]") {
  kv_pool pool({{1}, 4, 2});
  const auto first = pool.reserve({{1}, 3, 2});
  CHECK(first.slots.size() == 2);
  const auto second = pool.reserve({{1}, 3, 1});
  CHECK(numbers(second.blocks) == ints{3});
  CHECK(second.slots.empty());
  CHECK(pool.owed_blocks() == 2);
  CHECK(pool.owed_slots() == 1);
  const auto paid = pool.release({{1}, {{1}}, {{0}}});
  CHECK(numbers(paid.blocks) == ints{1});
  CHECK(paid.slots == std::vector<slot_id>{{0}});
  CHECK(pool.owed_blocks() == 1);
  CHECK(numbers(pool.release({{1}, {{2}, {3}}, {}}).blocks) == ints{3});
  CHECK(pool.free_blocks() == 1);
  pool.check_invariants();
}

TEST_CASE("a block or slot freed twice, or foreign, is refused by name [I13]") {
  const auto with_pool = [](auto&& act) {
    return death_message([&] {
      kv_pool pool({{1}, 4, 2});
      const auto grant = pool.reserve({{1}, 2, 1});
      DI_CHECK(grant.blocks.size() == 2, "{}", grant.blocks.size());
      act(pool);
    });
  };
  const auto double_block = with_pool([](kv_pool& pool) {
    DI_CHECK(pool.release({{1}, {{1}}, {}}).blocks.empty(), "paid");
    DI_CHECK(pool.release({{1}, {{1}}, {}}).blocks.empty(), "paid");
  });
  CHECK(double_block.find("block 1 of rank 1 was freed twice") != std::string::npos);
  const auto double_slot = with_pool([](kv_pool& pool) {
    DI_CHECK(pool.release({{1}, {}, {{1}}}).blocks.empty(), "paid");
  });
  CHECK(double_slot.find("slot 1 of rank 1 was freed twice") != std::string::npos);
  const auto foreign = with_pool([](kv_pool& pool) {
    DI_CHECK(pool.release({{1}, {{4}}, {}}).blocks.empty(), "paid");
  });
  CHECK(foreign.find("block 4 of a pool of 4") != std::string::npos);
}

TEST_CASE("a lease that still holds something may not be dropped [I13]") {
  const auto said = death_message([] {
    sequence_lease lease;
    lease.append({3});
  });
  CHECK(said.find("a lease of 1 blocks") != std::string::npos);
}

TEST_CASE("a reset pool is a fresh one") {
  kv_pool pool({{1}, 3, 2});
  CHECK(pool.reserve({{1}, 9, 9}).blocks.size() == 3);
  pool.reset();
  pool.check_invariants();
  CHECK(pool.free_blocks() == 3);
  CHECK(pool.owed_blocks() == 0);
  CHECK(numbers(pool.reserve({{1}, 1, 0}).blocks) == ints{0});
}

TEST_CASE("free and held blocks and slots are conserved, whatever comes in which order [I12]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    kv_pool pool({{1}, 12, 5});
    std::map<std::int32_t, std::int32_t> refs;
    std::vector<slot_id> slots;
    const auto take = [&](const kv_grant& grant) {
      for (const auto block : grant.blocks) CHECK(refs[block.value]++ == 0);
      slots.insert(slots.end(), grant.slots.begin(), grant.slots.end());
    };
    for (std::uint32_t i = 0; i < 100; ++i) {
      const auto words = random_words(seed, i, draw_purpose::target, 0);
      const block_id block{static_cast<std::int32_t>(words[1] % 12)};
      if (words[0] % 3 == 0) {
        take(pool.reserve(
          {{1}, static_cast<std::int32_t>(words[1] % 4), static_cast<std::int32_t>(words[2] % 2)}));
      } else if (words[0] % 3 == 1 && refs[block.value] > 0) {
        --refs[block.value];
        take(pool.release({{1}, {block}, {}}));
      } else if (!slots.empty()) {
        const auto slot = slots.back();
        slots.pop_back();
        take(pool.release({{1}, {}, {slot}}));
      }
      pool.check_invariants();
      const auto held =
        std::count_if(refs.begin(), refs.end(), [](const auto& it) { return it.second > 0; });
      CHECK(pool.held_blocks() == held);
      CHECK(pool.held_slots() == static_cast<std::int64_t>(slots.size()));
    }
  }
}

TEST_CASE("a lease goes out once, whole or by its tail, in table order [I13]") {
  sequence_lease lease;
  lease.take_slot({4});
  for (const auto id : {7, 3, 9, 1}) lease.append({id});
  const auto tail = lease.park_tail({11}, 3);
  CHECK(numbers(tail.blocks) == ints{1});
  CHECK(tail.slots.empty());
  const auto rest = lease.park_all({12});
  CHECK(rest.fence == step_id{12});
  CHECK(numbers(rest.blocks) == ints{7, 3, 9});
  CHECK(rest.slots == std::vector<slot_id>{{4}});
  CHECK(lease.is_empty());
  CHECK(lease.park_all({13}).blocks.empty());
}

TEST_CASE("nothing leaves before its fence has settled, and all of it leaves then [I17][I18]") {
  release_queue queue({1});
  queue.defer({{5}, {{10}, {11}}, {{2}}});
  queue.defer({{7}, {{12}}, {}});
  CHECK(queue.parked_blocks() == 3);
  CHECK(queue.drain({4}).blocks.empty());
  const auto first = queue.drain({5});
  CHECK(numbers(first.blocks) == ints{11, 10});  // deepest first
  CHECK(first.slots == std::vector<slot_id>{{2}});
  CHECK(queue.drain({6}).blocks.empty());
  CHECK(numbers(queue.drain({7}).blocks) == ints{12});
  CHECK(queue.parked_blocks() == 0);
}

TEST_CASE("parked fences never decrease, and a fence that has settled leaves at the next drain "
          "[I18]") {
  release_queue queue({1});
  queue.defer({{9}, {{1}}, {}});
  queue.defer({{3}, {{2}}, {}});  // waits with the one before it
  CHECK(queue.drain({8}).blocks.empty());
  CHECK(numbers(queue.drain({9}).blocks) == ints{1, 2});
  queue.defer({{2}, {{3}}, {}});
  CHECK(numbers(queue.drain({9}).blocks) == ints{3});
}

TEST_CASE("one message parks and drains, so that a step costs one of each") {
  release_queue queue({1});
  const auto now = queue.take({{1}, {4}, {{{4}, {{1}}, {}}, {{5}, {{2}}, {{0}}}}});
  CHECK(numbers(now.blocks) == ints{1});
  CHECK(queue.parked_slots() == 1);
  CHECK(numbers(queue.take({{1}, {5}, {}}).blocks) == ints{2});
}

TEST_CASE("the queue drains with no new work, and holds no more than the pipeline [I20]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    release_queue queue({1});
    std::uint64_t launched = 0, settled = 0, newest = 0;
    std::int32_t next = 0;
    std::map<std::int32_t, std::uint64_t> fence_of;
    const auto check = [&](const kv_release& done) {
      for (const auto block : done.blocks) {
        CHECK(fence_of.at(block.value) <= settled);
        fence_of.erase(block.value);
      }
    };
    for (std::uint32_t i = 0; i < 80; ++i) {
      const auto words = random_words(seed, i, draw_purpose::target, 0);
      if (words[0] % 3 == 0 && launched - settled < 3) ++launched;
      if (words[0] % 3 == 1 && settled < launched) {
        ++settled;
        check(queue.drain({settled}));
        for (const auto& [block, fence] : fence_of) CHECK(fence > settled);
      }
      if (words[0] % 3 == 2 && launched > settled) {
        // Any unsettled fence; one older than the last parked one waits with it.
        const auto fence = settled + 1 + words[1] % (launched - settled);
        queue.defer({{fence}, {{next}}, {}});
        newest = std::max(newest, fence);
        fence_of[next++] = newest;
      }
    }
    while (settled < launched) check(queue.drain({++settled}));
    CHECK(queue.parked_blocks() == 0);
    CHECK(fence_of.empty());
  }
}

TEST_CASE("what a timed-out step may touch stays until a later completion proves it finished "
          "[I17][I18]") {
  release_queue queue({1});
  queue.defer({{4}, {{1}}, {}});
  queue.quarantine({5});
  queue.defer({{5}, {{2}}, {{3}}});
  queue.defer({{6}, {{4}}, {}});
  CHECK(numbers(queue.drain({5}).blocks) == ints{1});  // before the step in question
  CHECK(queue.drain({8}).blocks.empty());
  queue.prove({4});  // of an earlier step: says nothing
  CHECK(queue.drain({9}).blocks.empty());
  queue.prove({6});
  CHECK_FALSE(queue.has_quarantine());
  CHECK(numbers(queue.drain({9}).blocks) == ints{2, 4});
}

TEST_CASE("of several timed-out steps each needs its proof, and a proof that came first counts") {
  release_queue queue({1});
  queue.quarantine({7});
  queue.quarantine({5});
  queue.defer({{5}, {{1}}, {}});
  queue.defer({{7}, {{2}}, {}});
  queue.prove({5});
  CHECK(numbers(queue.drain({9}).blocks) == ints{1});
  CHECK(queue.has_quarantine());
  queue.prove({7});
  CHECK(numbers(queue.drain({9}).blocks) == ints{2});
  queue.quarantine({6});  // the time-out of a step known to have finished
  CHECK_FALSE(queue.has_quarantine());
}
