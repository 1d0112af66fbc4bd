/// The reserve formula, its only home: how many tokens, and how many blocks, a sequence may need.
///
/// Launching the newest of several steps in flight, row j of width q_j writes KV at
/// [C_j, C_j + q_j) and C_{j+1} <= C_j + q_j. So before a launch the block table must hold
///   C + (sum of q_j in flight, the new row included) + w   tokens [I08],
/// that is C + depth * (1 + d) + w in steady decode. Tokens unless the name says blocks; blocks are
/// rounded up, always after the sum [I15].
/// Errors: none; callers check the arguments. Source: overlap scheduling, capacity algebra.
#pragma once

#include <algorithm>
#include <cstdint>

namespace deepinfer {

/// Largest number of steps in flight that any part of the engine is built for.
inline constexpr std::int32_t depth_limit = 3;

/// What bounds the positions that launched steps may write past the committed ones.
struct pipeline_shape {
  std::int32_t depth = 1;           ///< N: most steps in flight, the one being launched included
  std::int32_t num_drafts = 0;      ///< d: a decode row is up to 1 + d wide
  std::int32_t draft_overhang = 0;  ///< w: positions past the row's own that the drafter writes

  /// Tokens in flight in steady decode, overhang included.
  constexpr std::int64_t margin() const {
    return std::int64_t{depth} * (1 + std::int64_t{num_drafts}) + draft_overhang;
  }
};

/// Tokens a table must hold before a launch: `widths` is the sum of the widths in flight, the new
/// row's included; `overhang` is 0 for rows after which no drafter runs (not final chunks).
constexpr std::int64_t reserve_tokens(std::int64_t committed, std::int64_t widths,
                                      std::int64_t overhang) {
  return committed + widths + overhang;
}

/// The same for a pipeline full of decode rows.
constexpr std::int64_t reserve_tokens(std::int64_t committed, const pipeline_shape& shape) {
  return committed + shape.margin();
}

constexpr std::int64_t blocks_for(std::int64_t tokens, std::int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

/// Most output ids a sequence may ever have: prompt and output ids together never exceed
/// `max_model_len`. `max_tokens` < 0: only the context limits it.
constexpr std::int64_t output_limit(std::int64_t prompt, std::int64_t max_tokens,
                                    std::int64_t max_model_len) {
  const auto room = max_model_len - prompt;
  return max_tokens < 0 ? room : std::min(max_tokens, room);
}

/// May a decode row be launched [I11]? The row reads one id and writes at `committed + widths` at
/// most; the last id of a full sequence never needs KV. `widths`: in flight, without the new row.
constexpr bool decode_fits(std::int64_t committed, std::int64_t widths,
                           std::int64_t max_model_len) {
  return committed + widths + 2 <= max_model_len;
}

/// Drafts of a row that fits, cut so that no position >= max_model_len - 1 is written [I11].
constexpr std::int64_t drafts_allowed(std::int64_t drafts, std::int64_t committed,
                                      std::int64_t widths, std::int64_t max_model_len) {
  return std::clamp<std::int64_t>(max_model_len - (committed + widths) - 2, 0, drafts);
}

/// Tokens a table keeps when a settle has shown the settled length [I13][I16]: enough for every
/// launched row and for a full pipeline of decode rows, or for the prompt if that is longer.
/// `committed` is the settled length, never an optimistic one.
constexpr std::int64_t keep_tokens(std::int64_t committed, std::int64_t widths, std::int64_t prompt,
                                   const pipeline_shape& shape) {
  return std::max({reserve_tokens(committed, widths, shape.draft_overhang),
                   reserve_tokens(committed, shape), prompt + shape.draft_overhang});
}

}  // namespace deepinfer
