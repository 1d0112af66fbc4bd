#include "kernels/step/copy_blocks.hpp"

#include <cstring>

#include "runtime/base/check.hpp"

namespace deepinfer::kernels {

void copy_blocks_ref(const stream_ref& stream, const copy_blocks_args& a) {
  if (a.count == 0) return;
  for (std::int32_t i = 0; i < a.count; ++i) {
    const auto& it = a.copies[i];
    DI_CHECK(it.block >= 0 && it.block < a.blocks && it.place >= 0 && it.place < a.places,
             "copies block {} of {} and host place {} of {}", it.block, a.blocks, it.place,
             a.places);
  }
  // Every part sees all copies in their order, and none reads another's bytes.
  stream.for_ranges(a.part_count, [&a](std::int64_t begin, std::int64_t end) {
    for (auto p = begin; p < end; ++p) {
      const auto& part = a.parts[p];
      for (std::int32_t i = 0; i < a.count; ++i) {
        const auto& it = a.copies[i];
        auto* block = part.base + it.block * part.bytes;
        auto* place = a.arena + it.place * a.place_bytes + part.offset;
        std::memcpy(it.to_host ? place : block, it.to_host ? block : place,
                    static_cast<std::size_t>(part.bytes));
      }
    }
  });
}

}  // namespace deepinfer::kernels
