#include "kernels/attention/window_store.hpp"

#include <algorithm>

namespace deepinfer::kernels {

void window_store_ref(const stream_ref& stream, const window_store_args& a) {
  const auto& batch = a.batch;
  stream.for_ranges(batch.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      if (batch.is_padding(token) || !batch.is_among_last(token, a.ring_size)) continue;
      const auto entry =
        std::int64_t{batch.slot[token]} * a.ring_size + batch.position[token] % a.ring_size;
      const float* row = a.rows + token * a.dim;
      std::copy(row, row + a.dim, a.ring + entry * a.dim);
    }
  });
}

}  // namespace deepinfer::kernels
