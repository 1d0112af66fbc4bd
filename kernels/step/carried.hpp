/// What a sequence carries on the device from one step to the next, as columns over places.
///
/// A place is a slot (what the sequence holds now) or a row of the newest launched step (what that
/// step left it with). Both are written together, so a row that takes its values from a row and one
/// that takes them from its slot see the same [I29].
///   length       positions with a true id before the newest one; the newest id's own position
///   newest       the id at that position, or -1
///   is_alive     0: the stop mask has ended the sequence
///   draft_count  drafts for the positions behind the newest id, <= drafts_max
///   drafts, confidence  the drafts, and the chance of each if all before it are accepted
/// Errors: none. Source: architecture.md 3 (remap, "Truth of lengths"), 4.
#pragma once

#include <cstdint>

namespace deepinfer::kernels {

/// Where a row takes its values from; >= 0: a row of the newest launched step.
inline constexpr std::int32_t row_from_fresh = -1, row_from_slot = -2;

struct carried_view {
  std::int32_t drafts_max = 0;
  std::int32_t* length = nullptr;       ///< [places]
  std::int32_t* newest = nullptr;       ///< [places]
  std::int32_t* is_alive = nullptr;     ///< [places]
  std::int32_t* draft_count = nullptr;  ///< [places]
  std::int32_t* drafts = nullptr;       ///< [places, drafts_max]
  float* confidence = nullptr;          ///< [places, drafts_max]
};

}  // namespace deepinfer::kernels
