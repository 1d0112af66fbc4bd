#include "kernels/step/store_tokens.hpp"

namespace deepinfer::kernels {

void store_tokens_ref(const stream_ref& stream, const store_tokens_args& args) {
  stream.for_ranges(args.tokens, [&args](std::int64_t begin, std::int64_t end) {
    for (auto t = begin; t < end; ++t) {
      const auto slot = args.slot[t], position = args.position[t];
      if (slot < 0 || position < 0) continue;
      const auto* table = args.tables + std::int64_t{slot} * args.table_stride;
      const auto block = table[position / args.block_size];
      args.history[std::int64_t{block} * args.block_size + position % args.block_size] = args.id[t];
    }
  });
}

}  // namespace deepinfer::kernels
