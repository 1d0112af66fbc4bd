/// Keeps the step's window rows: ring[slot][position mod ring_size] = row.
///
/// Runs after the layer's attention (which reads older positions from the ring and this step's from
/// `rows`): of each row of the batch only the last ring_size tokens are stored, so no two tokens
/// share an entry. Padding tokens are skipped. Shapes: rows [tokens, dim]; ring [slots, ring_size,
/// dim].
/// Source: model-v41.md 14, 16 rule 1.
#pragma once

#include <cstdint>

#include "kernels/common/batch.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct window_store_args {
  static constexpr const char* op_name = "window_store";
  batch_view batch;
  const float* rows = nullptr;
  float* ring = nullptr;
  std::int32_t ring_size = 0;
  std::int64_t dim = 0;
};
void window_store_ref(const stream_ref&, const window_store_args&);

}  // namespace deepinfer::kernels
