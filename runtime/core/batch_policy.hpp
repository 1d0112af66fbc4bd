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
  std::int32_t width = 1;   ///< query tokens
};

/// Leaves candidates whose widths sum to at most `tokens`. When all fit their order stays (so that
/// a steady batch keeps its rows); else those planned longest ago go first, then those that started
/// first, up to the first that does not fit. Never allocates.
void choose_decodes(std::vector<decode_candidate>& candidates, std::int64_t tokens);

/// Most prefill steps in a row while rows decode; 0: no bound. A gap comes behind each run of them,
/// so where there is one, a run without a bound of its own is one step.
constexpr std::int32_t longest_prefill_run(std::int32_t decode_gap, std::int32_t prefill_run) {
  return prefill_run == 0 && decode_gap > 0 ? 1 : prefill_run;
}

/// May a step be a prefill step while rows could decode? `prefills` and `decodes`: steps of that
/// kind since the last of the other one. Bounded both ways: a run of prefill steps ends, and behind
/// it at least `decode_gap` decode steps come; behind these whoever wants prefill comes first.
constexpr bool may_prefill(std::int64_t prefills, std::int64_t decodes, std::int32_t decode_gap,
                           std::int32_t prefill_run) {
  const auto longest = longest_prefill_run(decode_gap, prefill_run);
  if (prefills > 0) return longest == 0 || prefills < longest;
  return decodes >= decode_gap;
}

/// The smallest bucket that holds `tokens`, of ascending buckets; 0: none does.
std::int32_t bucket_for(const std::vector<std::int32_t>& buckets, std::int64_t tokens);

}  // namespace deepinfer
