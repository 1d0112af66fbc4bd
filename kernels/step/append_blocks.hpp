/// Appends the blocks a plan brings to the block tables of its rows, before the step's forward.
///   tables[slot[i]][table_begin[i] + k] = blocks[block_begin[i] + k]
/// Shapes: below. rows == 0 is a legal call; a row may bring no block.
/// Source: messages/plan.hpp; architecture.md 3.
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct append_blocks_args {
  const std::int32_t* slot = nullptr;         ///< [rows]
  const std::int32_t* table_begin = nullptr;  ///< [rows] ordinal of the row's first new block
  const std::int32_t* block_begin = nullptr;  ///< [rows + 1] offsets into blocks
  const std::int32_t* blocks = nullptr;       ///< [block_begin[rows]]
  std::int32_t rows = 0;

  std::int32_t* tables = nullptr;  ///< [slots, table_stride] out
  std::int32_t table_stride = 0;
};

void append_blocks_ref(const stream_ref& stream, const append_blocks_args& args);

}  // namespace deepinfer::kernels
