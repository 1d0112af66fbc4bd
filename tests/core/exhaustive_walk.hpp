/// Every state of a tiny world: two sequences on one rank, and whatever may happen to them, in any
/// order, until no new state appears. Each state is visited once; what was found is checked after
/// every event (rank_world), and at each state from which nothing goes on by itself.
///
/// Messages come at once, but for the late event: either one channel is held up from some event to
/// some other, or the result of a settled step comes a second time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/core/rank_world.hpp"

namespace deepinfer::test {

struct tiny_sequence {
  std::int32_t prompt, max_tokens;
  std::int32_t stop_after;           ///< 0: it ends by length
  std::vector<std::int32_t> accept;  ///< drafts that its rows accept, cycling
};

struct tiny_world {
  std::int32_t depth, blocks, drafts;
  std::int32_t aborts, preemptions, lates, failures;  ///< at most so many
  std::vector<tiny_sequence> sequences;               ///< they come in this order
  std::int32_t chunk = 2;
  std::int32_t shared = 0;  ///< ids that the prompts begin with; > 0: with a prefix cache
  std::int32_t holds = 0;   ///< the client of the first one stops and goes on at most so often

  static constexpr std::int32_t block_size = 2;

  std::int64_t tokens() const { return std::int64_t{blocks} * block_size; }
  std::string name() const;
};

/// Has a sequence of so many outputs room when it is alone? always: whatever is accepted; never:
/// it has to end for want of blocks.
enum class has_room { always, sometimes, never };
has_room room_of(const tiny_world& world, const tiny_sequence& sequence, std::int64_t outputs);

struct walked {
  std::int64_t states = 0, transitions = 0, ends = 0;
  // Over the ends, each reached in one of its ways.
  std::int64_t displaced = 0, accepted = 0, cached = 0, without_room = 0;
  std::string fault;  ///< empty: none; else with the way to it

  walked& operator+=(const walked& other);
};

/// Stops at the first fault.
walked walk(const tiny_world& world);

}  // namespace deepinfer::test
