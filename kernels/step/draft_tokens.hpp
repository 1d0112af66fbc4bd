/// Spreads the sequences of a draft pass into its tokens: the anchor, then K - 1 noise ids, at the
/// positions after the last known one.
///   token s * K + i: id = i == 0 ? anchor[s] : noise, position = position[s] + 1 + i
/// Shapes: below. sequences == 0 is a legal call. A sequence with slot or position < 0 gives
/// padding tokens (slot -1, position -1, id = noise).
/// Source: model-v41.md 11.3.
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct draft_tokens_args {
  std::int32_t sequences = 0;
  std::int32_t drafts = 0;                 ///< K
  const std::int32_t* slot = nullptr;      ///< [sequences]
  const std::int32_t* position = nullptr;  ///< [sequences] last known position
  const std::int32_t* anchor = nullptr;    ///< [sequences]
  std::int32_t noise = 0;

  std::int32_t* token_id = nullptr;        ///< [sequences * K] out
  std::int32_t* token_slot = nullptr;      ///< [sequences * K] out
  std::int32_t* token_position = nullptr;  ///< [sequences * K] out
  std::int32_t* row_token = nullptr;       ///< [sequences * K] out: flat index of the anchor
  std::int32_t* row_first = nullptr;       ///< [sequences * K] out: position of the anchor
};

void draft_tokens_ref(const stream_ref& stream, const draft_tokens_args& args);

}  // namespace deepinfer::kernels
