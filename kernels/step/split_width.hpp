/// How many query tokens each row of a step really has, and where they begin.
///
/// A fresh row has what the host planned. A carried row has its newest id and at most planned - 1
/// of the drafts it carries. A row whose sequence has ended has none. Where the step has fewer
/// tokens than its rows were planned with, each row has one, and the others (tokens - rows) go to
/// the drafts of the largest survival, one after the other:
///   survival of draft j = product of confidence[0 .. j]; a confidence that is not there counts 1;
///   ties: the lower row
/// so a row gets a prefix of its drafts. Only the confidences of drafts that may be verified enter,
/// and these are a step old: what a step verifies never depends on what it decides.
/// Shapes: below. rows == 0 is a legal call. Errors: fewer tokens than rows, or rows that together
/// have more than `tokens`, abort.
/// Cost: O((rows + tokens) log rows) where the step is split, else O(rows); one thread.
/// Source: messages/plan.hpp (step_plan::total_width); deepinfer.md 1.11.
#pragma once

#include <cstdint>

#include "kernels/step/carried.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct split_width_args {
  const std::int32_t* source = nullptr;  ///< [rows]
  const std::int32_t* slot = nullptr;    ///< [rows]
  const std::int32_t* width = nullptr;   ///< [rows] most query tokens, >= 1
  std::int32_t rows = 0;
  std::int32_t tokens = 0;  ///< of the step
  carried_view before{};    ///< rows of the newest launched step
  carried_view slots{};

  float* survival = nullptr;          ///< [rows] scratch
  std::int32_t* heap = nullptr;       ///< [rows] scratch
  std::int32_t* row_begin = nullptr;  ///< [rows + 1] out: flat index of each row's first token
};

void split_width_ref(const stream_ref& stream, const split_width_args& args);

}  // namespace deepinfer::kernels
