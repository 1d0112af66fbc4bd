/// Resets the slots of sequences whose epoch starts with this step: the length it starts at (not 0
/// where cached blocks hold what comes before), no newest id, no drafts, alive, an empty block
/// table, the sampling parameters staged for it.
///
/// Nothing else of a slot is cleared: every state is read by position, and no position at or above
/// the slot's length is ever read, so what an earlier sequence left there cannot show.
/// Shapes: below. starts == 0 is a legal call. Slots of one call are distinct.
/// Source: architecture.md 3 ("Truth of lengths"); model-v41.md 14.3.
#pragma once

#include <cstdint>

#include "kernels/sampling/slot_sampling.hpp"
#include "kernels/step/carried.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct start_slots_args {
  const std::int32_t* slot = nullptr;       ///< [starts]
  const std::int32_t* position = nullptr;   ///< [starts] of the first query
  const slot_sampling* sampling = nullptr;  ///< [starts]
  std::int32_t starts = 0;

  carried_view slots{};                  ///< out
  slot_sampling* slot_params = nullptr;  ///< [slots] out
  std::int32_t* tables = nullptr;        ///< [slots, table_stride] out, -1
  std::int32_t table_stride = 0;
};

void start_slots_ref(const stream_ref& stream, const start_slots_args& args);

}  // namespace deepinfer::kernels
