/// Blocks on their way between the device's arrays and the host tier of the prefix cache, in the
/// order given: a block that one copy empties may be filled by a later one.
///
/// A block is scattered over arrays, part by part; a place of the host tier holds it in one piece:
///   part p of block b = bytes [0, part.bytes) at part.base + b * part.bytes
///                     = bytes of place h at arena + h * place_bytes + part.offset
/// Shapes: parts [part_count], whose offsets do not overlap; copies [count]; arena [places,
/// place_bytes]. Errors: a block or place that there is not aborts.
/// Source: messages/kv.hpp (block_move).
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct block_part {
  std::byte* base = nullptr;
  std::int64_t bytes = 0;   ///< of each block
  std::int64_t offset = 0;  ///< in a place
};

struct block_copy {
  std::int32_t block = 0;
  std::int32_t place = 0;
  bool to_host = false;
};

struct copy_blocks_args {
  const block_part* parts = nullptr;
  std::int32_t part_count = 0;
  std::int32_t blocks = 0;  ///< there are
  const block_copy* copies = nullptr;
  std::int32_t count = 0;
  std::byte* arena = nullptr;
  std::int64_t place_bytes = 0;
  std::int32_t places = 0;  ///< there are
};

void copy_blocks_ref(const stream_ref& stream, const copy_blocks_args& args);

}  // namespace deepinfer::kernels
