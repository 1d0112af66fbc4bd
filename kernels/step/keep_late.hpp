/// The tokens of a step that the late layers compute, as a step of their own: those at or after
/// their sequence's late_begin. Of each row these are the last ones, so they are a row again.
///   token[k] = index of kept token k in the step, ascending; kept_at[token[k]] = k, -1 elsewhere
///   slot, position: the token's; row_first_token, row_first_position: of the row that is left
/// Entries behind the last kept token are padding: token, slot, position and row_first_position -1.
/// Shapes: late_begin [slots]; kept_at [tokens], the others [kept], all out. Padding is not kept.
/// Errors: more tokens to keep than `kept` abort. Source: model-v41.md 17.
#pragma once

#include <cstdint>

#include "kernels/common/batch.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct keep_late_args {
  batch_view batch;
  const std::int32_t* late_begin = nullptr;
  std::int32_t kept = 0;  ///< a bound the host knew
  std::int32_t* token = nullptr;
  std::int32_t* kept_at = nullptr;
  std::int32_t* slot = nullptr;
  std::int32_t* position = nullptr;
  std::int32_t* row_first_token = nullptr;
  std::int32_t* row_first_position = nullptr;
};

void keep_late_ref(const stream_ref& stream, const keep_late_args& args);

}  // namespace deepinfer::kernels
