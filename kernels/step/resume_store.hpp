/// Keeps the window rows before a block's end beside the block, for whoever goes on behind it.
///   resume[block][i] = row of position end - kept + i   for i in [0, kept), positions >= 0 only
/// of every listed token: end is its position + 1, block the one of its sequence that it completes.
/// Rows at or after the row's first position come from `rows`, older ones from the ring: runs
/// before window_store, so that a chunk longer than the ring can keep its inner edges as well.
/// Shapes: edge [*count], of resume_edges; rows [tokens, dim]; ring [slots, ring_size, dim]; resume
/// [blocks, kept, dim]. kept <= ring_size. Errors: a token whose block is missing aborts.
/// Source: model-v41.md 18 (window rows of a prefix), 16 rule 1.
#pragma once

#include <cstdint>

#include "kernels/common/batch.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct resume_store_args {
  batch_view batch;
  const std::int32_t* edge = nullptr;
  const std::int32_t* count = nullptr;  ///< [1]
  const float* rows = nullptr;
  const float* ring = nullptr;
  std::int32_t ring_size = 0;
  std::int32_t kept = 0;
  std::int64_t dim = 0;
  float* resume = nullptr;
};

void resume_store_ref(const stream_ref& stream, const resume_store_args& args);

}  // namespace deepinfer::kernels
