/// Remap: where each planned row takes its newest token and length from [I26].
///
/// - a prompt chunk is always `from_fresh`: its ids are in the plan;
/// - a decode row whose sequence was sampled in the newest launched step takes that row, whether
///   the step has settled or not;
/// - any other decode row skipped that step: its values wait in the sequence's slot (`from_slot`),
///   where a row that was left out loses nothing.
/// No table is kept: a sequence remembers its place in the newest step that named it.
/// Errors: `check_remap` is a DI_CHECK.
#pragma once

#include <cstdint>

#include "messages/plan.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

/// A sequence's place in the newest launched step that names it.
struct last_place {
  step_id step;  ///< 0: no step yet
  std::uint32_t epoch = 0;
  std::int32_t row = 0;
  bool yields = false;  ///< the row was sampled: a decode row, or the final chunk of a prompt
};

/// `newest`: the newest launched step of the rank.
constexpr std::int32_t source_of(const last_place& place, row_kind kind, std::uint32_t epoch,
                                 step_id newest) {
  if (kind == row_kind::prefill) return from_fresh;
  const bool in_newest = place.step == newest && place.epoch == epoch && place.yields;
  return in_newest ? place.row : from_slot;
}

/// Every source of `plan` names fresh values, the slot, or exactly one sampled row of `newest` (the
/// step launched before it) with the same sequence and epoch; no row is named twice. O(rows).
void check_remap(const step_plan& plan, const step_plan& newest);

}  // namespace deepinfer
