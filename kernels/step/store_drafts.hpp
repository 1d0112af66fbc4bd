/// Puts what the drafter made of a group's rows into the rows' columns and the slots.
///
/// Slot < 0: the row gets no drafts; its column holds ids -1 and confidences 0 for the host. Ids
/// outside [0, vocab) (the drafter's logits were not finite) become 0, and confidences that are no
/// number 0: a draft is a guess, and any id is legal [I27].
/// Shapes: below. rows == 0 is a legal call.
/// Source: model-v41.md 11.5, 11.6; architecture.md 4.
#pragma once

#include <cstdint>

#include "kernels/step/carried.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct store_drafts_args {
  const std::int32_t* row = nullptr;   ///< [rows] rows of the step
  const std::int32_t* slot = nullptr;  ///< [rows] or -1
  std::int32_t rows = 0;
  std::int32_t vocab = 0;
  const std::int32_t* id = nullptr;   ///< [rows, drafts_max]
  const float* confidence = nullptr;  ///< [rows, drafts_max] or null: all 1

  carried_view after{};  ///< rows of this step, out
  carried_view slots{};  ///< out
};

void store_drafts_ref(const stream_ref& stream, const store_drafts_args& args);

}  // namespace deepinfer::kernels
