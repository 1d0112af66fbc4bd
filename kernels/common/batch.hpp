/// One step's tokens as every kernel sees them: a flat array, each token with its sequence slot and
/// position. Nothing here is frozen by the host: the arrays are the device's own, already
/// corrected.
///
/// A row is a run of consecutive tokens of one sequence with consecutive positions. A token whose
/// slot or position is negative is padding: kernels write nothing for it, give zero outputs, and
/// route it nowhere. `row_first_token` is a flat index into the whole step, so that rows written in
/// this step (window rows, pooling inputs) are found in step buffers and older ones in the rings.
#pragma once

#include <cstdint>

namespace deepinfer::kernels {

struct batch_view {
  std::int32_t tokens = 0;
  const std::int32_t* slot = nullptr;             ///< [tokens]
  const std::int32_t* position = nullptr;         ///< [tokens]
  const std::int32_t* row_first_token = nullptr;  ///< [tokens] flat index of the row's first token
  const std::int32_t* row_first_position = nullptr;  ///< [tokens] position of that token

  const std::int32_t* block_table = nullptr;  ///< [slots, max_blocks] block ids
  std::int32_t max_blocks = 0;
  std::int32_t block_size = 0;  ///< tokens per block; a multiple of every ratio

  bool is_padding(std::int64_t token) const { return slot[token] < 0 || position[token] < 0; }

  /// Compressed rows a query sees: the token that completes a group sees its row.
  std::int64_t visible(std::int64_t token, std::int32_t ratio) const {
    return (std::int64_t{position[token]} + 1) / ratio;
  }

  std::int64_t block_of(std::int64_t token, std::int64_t ordinal) const {
    return block_table[std::int64_t{slot[token]} * max_blocks + ordinal];
  }

  /// Index of an entry in a paged array [blocks, block_size / ratio, ...].
  std::int64_t paged_index(std::int64_t token, std::int64_t row, std::int32_t ratio) const {
    const std::int64_t rows_per_block = block_size / ratio;
    return block_of(token, row / rows_per_block) * rows_per_block + row % rows_per_block;
  }

  /// True if `token` is among the last `count` tokens of its row: what a ring of that size keeps.
  bool is_among_last(std::int64_t token, std::int64_t count) const {
    const auto later = token + count;
    return later >= tokens || is_padding(later) || row_first_token[later] != row_first_token[token];
  }
};

}  // namespace deepinfer::kernels
