// Two sequences on tiny worlds: every state that any interleaving of submit, plan, settle, failure,
// abort, preemption and a late message leads to, for every combination of the bounds.
#include <doctest/doctest.h>

#include <bit>
#include <string>
#include <vector>

#include "tests/core/exhaustive_walk.hpp"
#include "tests/support/effort.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

bool is_full() {
  return with_effort(1) > 1;
}

/// What may happen at most once, as bits.
enum events : std::uint32_t { abort_one = 1, preempt_one = 2, be_late = 4, fail_one = 8 };

/// Sanitizers, which take ten times as long, see every event, each alone; the other build sees all
/// sets.
std::vector<std::uint32_t> sets_of(std::vector<std::uint32_t> sets) {
#ifdef __SANITIZE_ADDRESS__
  if (!is_full()) std::erase_if(sets, [](std::uint32_t it) { return std::popcount(it) != 1; });
#endif
  return sets;
}

/// One ends by length, after two chunks; the other stops inside what it might have given.
const std::vector<tiny_sequence> sequences{{3, 3, 0, {0, 1}}, {1, 9, 2, {0, 2}}};
/// The same with fewer steps: for worlds in which much may happen.
const std::vector<tiny_sequence> short_sequences{{3, 2, 0, {1, 0}}, {1, 9, 1, {1}}};

struct bounds {
  std::int32_t least_blocks, most_drafts;
  std::vector<std::uint32_t> allowed;  ///< sets of events
};

/// Depth 1..3, up to 4 blocks, up to 2 drafts, and what may happen.
std::vector<tiny_world> worlds(const bounds& of) {
  std::vector<tiny_world> out;
  for (std::int32_t depth = 1; depth <= 3; ++depth)
    for (auto blocks = of.least_blocks; blocks <= 4; ++blocks)
      for (std::int32_t drafts = 0; drafts <= of.most_drafts; ++drafts)
        for (const auto may : of.allowed) {
          const auto once = [may](events what) { return (may & what) != 0 ? 1 : 0; };
          const bool is_rich = (may & 7u) == 7u;
          out.push_back({depth, blocks, drafts, once(abort_one), once(preempt_one), once(be_late),
                         once(fail_one), is_rich && !is_full() ? short_sequences : sequences});
        }
  return out;
}

/// Nobody of it can ever end as wanted.
bool has_no_room(const tiny_world& world) {
  for (const auto& it : world.sequences) {
    const auto outputs = it.stop_after > 0 ? it.stop_after : it.max_tokens;
    if (room_of(world, it, outputs) != has_room::never) return false;
  }
  return true;
}

/// Walks them all. Worlds without room are walked as well: there everybody has to be told.
walked walk_all(const std::vector<tiny_world>& worlds) {
  walked all;
  std::string without_room;
  std::int64_t too_small = 0, largest = 0;
  for (const auto& world : worlds) {
    const auto seen = walk(world);
    INFO(seen.fault);
    REQUIRE(seen.fault.empty());
    REQUIRE(seen.ends > 0);
    all += seen;
    largest = std::max(largest, seen.states);
    if (!has_no_room(world)) continue;
    ++too_small;
    CHECK(seen.without_room >= seen.ends);
    const auto name =
      std::to_string(world.blocks) + " blocks with " + std::to_string(world.drafts) + " drafts";
    if (without_room.find(name) == std::string::npos) without_room += ", " + name;
  }
  MESSAGE(worlds.size() << " worlds: " << all.states << " states, " << all.transitions
                        << " transitions, " << all.ends
                        << " ends; most states of one world: " << largest << "; " << too_small
                        << " worlds where nobody has room for its end" << without_room);
  return all;
}

}  // namespace

TEST_CASE("every interleaving of two sequences keeps every book and gives the right tokens "
          "[I01][I02][I04][I05][I08][I09][I12][I13][I14][I16][I17][I18][I19][I20][I35][I37][I38]"
          "[I40][I54][I55][I56][I59]") {
  const auto all = walk_all(worlds({1, 2, sets_of({0, 1, 2, 3, 4, 5, 6, 7})}));
  CHECK(all.displaced > 1000);
  CHECK(all.accepted > 500);
  CHECK(all.without_room > 100);
}

TEST_CASE("every interleaving with a failed step keeps every book and gives the right tokens "
          "[I02][I12][I17][I35][I38][I59]") {
  bounds of{1, 2, sets_of({8, 9, 10})};
  if (is_full()) of.allowed = {8, 9, 10, 11, 12, 13, 14, 15};
  walk_all(worlds(of));
}

TEST_CASE("every interleaving of two sequences that share a cached prefix gives the right tokens "
          "[I17][I35][I38][I48][I49][I52]") {
  bounds of{3, 1, sets_of({0, 1, 2, 3, 4, 5, 6, 8, 12})};
  if (is_full()) of.allowed = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  auto all = worlds(of);
  for (auto& world : all) {
    world.shared = 3;
    world.chunk = 0;
    world.sequences = {{4, 2, 0, {1, 0}}, {4, 9, 2, {0, 1}}};
  }
  CHECK(walk_all(all).cached > 1000);
}

TEST_CASE("every interleaving of two sequences, one of which is held for a while, gives the right "
          "tokens [I02][I12][I13][I17][I35][I38][I54][I56]") {
  auto all = worlds({1, 1, sets_of({0, 1, 2})});
  for (auto world : worlds({3, 0, sets_of({0, 2})})) {
    world.shared = 3;
    world.chunk = 0;
    world.sequences = {{4, 2, 0, {1, 0}}, {4, 9, 2, {0, 1}}};
    all.push_back(world);
  }
  for (auto& world : all) world.holds = 1;
  const auto seen = walk_all(all);
  CHECK(seen.displaced > 100);
  CHECK(seen.cached > 100);
}
