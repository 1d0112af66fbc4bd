/// Writes the ids of a step's tokens into the paged history, before the forward reads it (Engram)
/// and before sampling counts it (penalties).
///   history[table(slot, position / block_size)][position % block_size] = id
/// Shapes: below. tokens == 0 is a legal call. A token with slot or position < 0 is padding.
/// Source: model-v41.md 10.2, 14.1.
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct store_tokens_args {
  const std::int32_t* id = nullptr;        ///< [tokens]
  const std::int32_t* slot = nullptr;      ///< [tokens]
  const std::int32_t* position = nullptr;  ///< [tokens]
  std::int32_t tokens = 0;
  const std::int32_t* tables = nullptr;  ///< [slots, table_stride]
  std::int32_t table_stride = 0;
  std::int32_t block_size = 1;
  std::int32_t* history = nullptr;  ///< [blocks, block_size] out
};

void store_tokens_ref(const stream_ref& stream, const store_tokens_args& args);

}  // namespace deepinfer::kernels
