/// The fix-up of a step: gives every row its true first position and token ids, and writes what the
/// forward reads of each token. This is where values meet that the host planned with bounds only.
///
/// Row i is fresh (its ids and position are the host's), or carried: by the row of the newest
/// launched step that `source` names, or by its slot. A carried row's position is the carried
/// length, its ids are the newest one and then the drafts.
///   id       = fresh[fresh_begin[i] ...], or newest, drafts[0], drafts[1], ... of the place
///   position = planned[i] or length of the place, growing by one per token of the row
/// Tokens behind the last row's are padding: id, slot, position and row_first -1.
/// Shapes: below. rows == 0 is a legal call.
/// Errors: in debug builds a row's carried values that its slot does not have abort [I29].
/// Source: architecture.md 3 ("Truth of lengths", remap); messages/plan.hpp; [I26].
#pragma once

#include <cstdint>

#include "kernels/step/carried.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct fix_rows_args {
  const std::int32_t* source = nullptr;       ///< [rows] in [-2, rows of the newest launched step)
  const std::int32_t* slot = nullptr;         ///< [rows]
  const std::int32_t* planned = nullptr;      ///< [rows] first position, read for fresh rows
  const std::int32_t* row_begin = nullptr;    ///< [rows + 1] flat index of each row's first token
  const std::int32_t* fresh_begin = nullptr;  ///< [rows] offset of a fresh row's ids in fresh
  const std::int32_t* fresh = nullptr;        ///< ids the host knew
  carried_view before{};                      ///< rows of the newest launched step
  carried_view slots{};
  std::int32_t rows = 0;
  std::int32_t tokens = 0;  ///< >= row_begin[rows]

  std::int32_t* first_position = nullptr;  ///< [rows] out
  std::int32_t* token_id = nullptr;        ///< [tokens] out
  std::int32_t* token_slot = nullptr;      ///< [tokens] out
  std::int32_t* token_position = nullptr;  ///< [tokens] out
  std::int32_t* row_token = nullptr;       ///< [tokens] out: flat index of the row's first token
  std::int32_t* row_first = nullptr;       ///< [tokens] out: the row's first position
};

void fix_rows_ref(const stream_ref& stream, const fix_rows_args& args);

}  // namespace deepinfer::kernels
