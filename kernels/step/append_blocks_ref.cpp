#include "kernels/step/append_blocks.hpp"

#include <algorithm>

namespace deepinfer::kernels {

void append_blocks_ref(const stream_ref& stream, const append_blocks_args& args) {
  stream.for_ranges(args.rows, [&args](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      auto* table = args.tables + std::int64_t{args.slot[i]} * args.table_stride;
      std::copy(args.blocks + args.block_begin[i], args.blocks + args.block_begin[i + 1],
                table + args.table_begin[i]);
    }
  });
}

}  // namespace deepinfer::kernels
