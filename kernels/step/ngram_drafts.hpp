/// Drafts from a sequence's own ids: what followed the last time it ended as it ends now.
///
/// The sequence is the ids at positions [0, position] of the paged history, then the anchor. Its
/// last n ids are looked for further left, n = 3 first, then 2, then 1; the latest place counts.
/// The drafts are the ids behind that place; where these end with the sequence, and where there is
/// no place, the anchor is repeated.
/// Shapes: below. rows == 0 is a legal call. Slot or position < 0: drafts are -1.
/// Cost: reads the history once, from its end, until three ids match; one thread per row.
/// Source: architecture.md 4 ("Drafts").
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct ngram_drafts_args {
  std::int32_t rows = 0;
  std::int32_t drafts = 0;
  const std::int32_t* slot = nullptr;      ///< [rows]
  const std::int32_t* position = nullptr;  ///< [rows] last position in the history
  const std::int32_t* anchor = nullptr;    ///< [rows] id at position + 1
  const std::int32_t* history = nullptr;   ///< [blocks, block_size]
  const std::int32_t* tables = nullptr;    ///< [slots, table_stride]
  std::int32_t table_stride = 0;
  std::int32_t block_size = 1;

  std::int32_t* id = nullptr;  ///< [rows, drafts] out
};

void ngram_drafts_ref(const stream_ref& stream, const ngram_drafts_args& args);

}  // namespace deepinfer::kernels
