/// Ends a step on the device: the slots' true lengths move past what the step has written, and the
/// ids it sampled become the slots' newest, for whatever step names the sequence next.
///   length[slot[i]] = next_position[i];  newest[slot[r]] = sampled[r] = id[y], r = yield_row[y]
/// Rows that yield nothing get sampled -1 and keep their newest id. An id < 0 (a row whose sampling
/// failed) is carried as 0: its step is reported as failed, and a step launched behind it must
/// still find an id it may look up.
/// Shapes: below. rows == 0 is a legal call. Slots of one call are distinct.
/// Source: architecture.md 3 ("Truth of lengths").
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct advance_slots_args {
  const std::int32_t* slot = nullptr;           ///< [rows]
  const std::int32_t* next_position = nullptr;  ///< [rows] one past the row's last position
  std::int32_t rows = 0;
  const std::int32_t* yield_row = nullptr;  ///< [yields] ascending rows that were sampled
  const std::int32_t* id = nullptr;         ///< [yields]
  std::int32_t yields = 0;
  std::int32_t* sampled = nullptr;  ///< [rows] out
  std::int32_t* length = nullptr;   ///< [slots] out
  std::int32_t* newest = nullptr;   ///< [slots] out
};

void advance_slots_ref(const stream_ref& stream, const advance_slots_args& args);

}  // namespace deepinfer::kernels
