#include "kernels/step/resume_store.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer::kernels {

void resume_store_ref(const stream_ref& stream, const resume_store_args& a) {
  const auto& batch = a.batch;
  stream.for_ranges(std::int64_t{*a.count} * a.kept, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const std::int64_t token = a.edge[item / a.kept], i = item % a.kept;
      const auto position = std::int64_t{batch.position[token]} + 1 - a.kept + i;
      if (position < 0) continue;
      const auto block = batch.block_of(token, batch.position[token] / batch.block_size);
      DI_CHECK(block >= 0, "token {} (slot {}, position {}) completes no block", token,
               batch.slot[token], batch.position[token]);
      const auto since_first = position - batch.row_first_position[token];
      const auto entry = std::int64_t{batch.slot[token]} * a.ring_size + position % a.ring_size;
      const float* row = since_first >= 0
                           ? a.rows + (batch.row_first_token[token] + since_first) * a.dim
                           : a.ring + entry * a.dim;
      std::copy(row, row + a.dim, a.resume + (block * a.kept + i) * a.dim);
    }
  });
}

}  // namespace deepinfer::kernels
