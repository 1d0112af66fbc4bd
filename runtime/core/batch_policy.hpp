/// Which rows a step takes and how wide they are: pure functions over candidates.
///
/// Errors: none.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/ids.hpp"

namespace deepinfer {

struct sequence_state;

/// Prompt tokens of the next chunk: min(rest, chunk_size, budget); chunk_size 0: no limit of its
/// own. 0 when the budget is used up.
std::int64_t chunk_width(std::int64_t rest, std::int64_t chunk_size, std::int64_t budget);

struct decode_candidate {
  sequence_state* sequence = nullptr;
  step_id planned;          ///< newest step that had a row of it
  std::uint64_t order = 0;  ///< in which it started; unique
};

/// Leaves at most `rows` candidates. When all fit their order stays (so that a steady batch keeps
/// its rows); else those planned longest ago go first, then those that started first. Never
/// allocates.
void choose_decodes(std::vector<decode_candidate>& candidates, std::int64_t rows);

}  // namespace deepinfer
