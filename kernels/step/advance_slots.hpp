/// Ends a step on the device for a group of its rows: true lengths move past what the step has
/// written and the group keeps, and the last id it gave becomes the newest, in the row's column and
/// in its slot, for whatever step names the sequence next.
///
///   a row that gave n ids: newest = the last of them, length = that id's position
///   a row without queries: length = first position + width; the rest is as its slot has it
/// So what rejected drafts wrote is behind the length: it is rewound. Drafts are used up. An id < 0
/// (a row whose sampling failed) is carried as 0: its sequence ends when the step settles, and a
/// row launched behind it must still find an id it may look up. That row writes to blocks of its
/// own sequence alone, and nobody reads what it gives.
/// For the drafter: draft_slot = slot, draft_position = length - 1 (the last position with a true
/// id before the newest), anchor = newest; -1 in all of them where the row gave nothing or ended.
/// Shapes: below. rows == 0 is a legal call. Slots of one call are distinct.
/// Source: architecture.md 3 ("Truth of lengths"); model-v41.md 11.6, 14.3.
#pragma once

#include <cstdint>

#include "kernels/step/carried.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct advance_slots_args {
  const std::int32_t* row = nullptr;  ///< [rows] rows of the step, distinct
  std::int32_t rows = 0;
  const std::int32_t* slot = nullptr;            ///< [rows of the step]
  const std::int32_t* row_begin = nullptr;       ///< [rows of the step + 1]
  const std::int32_t* first_position = nullptr;  ///< [rows of the step]

  const std::int32_t* query_begin = nullptr;  ///< [rows + 1]
  const std::int32_t* position = nullptr;     ///< [queries] of the token produced
  const std::int32_t* id = nullptr;           ///< [queries]
  const std::int32_t* given = nullptr;        ///< [rows] ids that stand, of verify_rows
  const std::int32_t* is_alive = nullptr;     ///< [rows] of verify_rows

  carried_view after{};                    ///< rows of this step, out
  carried_view slots{};                    ///< out
  std::int32_t* draft_slot = nullptr;      ///< [rows] out
  std::int32_t* draft_position = nullptr;  ///< [rows] out
  std::int32_t* anchor = nullptr;          ///< [rows] out
};

void advance_slots_ref(const stream_ref& stream, const advance_slots_args& args);

}  // namespace deepinfer::kernels
