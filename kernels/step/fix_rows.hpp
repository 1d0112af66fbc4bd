/// The fix-up of a step: gives every row its true first position and token ids, and writes what the
/// forward reads of each token. This is where values meet that the host planned with bounds only.
///
/// Row i is fresh (its ids and position are the host's), or carried: its position is the slot's
/// length, its one id was sampled by the newest launched step (source >= 0: that step's row) or
/// lies in the slot (an older step's).
///   id       = fresh[fresh_begin[i] ...], sampled[source[i]] or newest[slot[i]]
///   position = planned[i] or length[slot[i]], growing by one per token of the row
/// Shapes: below. rows == 0 is a legal call. A carried row is one token wide.
/// Source: architecture.md 3 ("Truth of lengths", remap); messages/plan.hpp; [I26].
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

inline constexpr std::int32_t row_from_fresh = -1, row_from_slot = -2;

struct fix_rows_args {
  const std::int32_t* source = nullptr;       ///< [rows] in [-2, rows of the newest launched step)
  const std::int32_t* slot = nullptr;         ///< [rows]
  const std::int32_t* planned = nullptr;      ///< [rows] first position, read for fresh rows
  const std::int32_t* token_begin = nullptr;  ///< [rows + 1] flat index of each row's first token
  const std::int32_t* fresh_begin = nullptr;  ///< [rows] offset of a fresh row's ids in fresh
  const std::int32_t* fresh = nullptr;        ///< ids the host knew
  const std::int32_t* sampled = nullptr;      ///< ids sampled by the newest launched step, per row
  const std::int32_t* length = nullptr;       ///< [slots]
  const std::int32_t* newest = nullptr;       ///< [slots]
  std::int32_t rows = 0;
  const std::int32_t* yield_row = nullptr;  ///< [yields] rows that shall be sampled
  std::int32_t yields = 0;

  std::int32_t* next_position = nullptr;   ///< [rows] out: one past the row's last position
  std::int32_t* token_id = nullptr;        ///< [tokens] out
  std::int32_t* token_slot = nullptr;      ///< [tokens] out
  std::int32_t* token_position = nullptr;  ///< [tokens] out
  std::int32_t* row_token = nullptr;       ///< [tokens] out: flat index of the row's first token
  std::int32_t* row_first = nullptr;       ///< [tokens] out: the row's first position
  std::int32_t* yield_position = nullptr;  ///< [yields] out: position of the token to be sampled
};

void fix_rows_ref(const stream_ref& stream, const fix_rows_args& args);

}  // namespace deepinfer::kernels
