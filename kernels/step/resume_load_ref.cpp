#include "kernels/step/resume_load.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer::kernels {

namespace {

void load(const resume_load_args& a, std::int64_t start) {
  const std::int64_t slot = a.slot[start], end = a.position[start];
  DI_CHECK(end % a.every == 0, "slot {} starts at {}, resume points end every {}", slot, end,
           a.every);
  const std::int64_t block = a.tables[slot * a.table_stride + end / a.block_size - 1];
  DI_CHECK(block >= 0, "slot {} starts at {} without the block before", slot, end);
  for (auto q = std::max<std::int64_t>(0, end - a.kept); q < end; ++q) {
    const float* row = a.resume + (block * a.kept + q - (end - a.kept)) * a.dim;
    std::copy(row, row + a.dim, a.ring + (slot * a.ring_size + q % a.ring_size) * a.dim);
  }
}

}  // namespace

void resume_load_ref(const stream_ref& stream, const resume_load_args& args) {
  stream.for_ranges(args.starts, [&args](std::int64_t begin, std::int64_t end) {
    for (auto start = begin; start < end; ++start)
      if (args.position[start] > 0) load(args, start);
  });
}

}  // namespace deepinfer::kernels
