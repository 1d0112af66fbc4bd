#include "kernels/step/advance_slots.hpp"

#include <algorithm>

namespace deepinfer::kernels {

void advance_slots_ref(const stream_ref& stream, const advance_slots_args& args) {
  stream.for_ranges(args.rows, [&args](std::int64_t begin, std::int64_t end) {
    const auto* yield = std::lower_bound(args.yield_row, args.yield_row + args.yields, begin);
    for (auto i = begin; i < end; ++i) {
      const auto slot = args.slot[i];
      args.length[slot] = args.next_position[i];
      args.sampled[i] = -1;
      if (yield == args.yield_row + args.yields || *yield != i) continue;
      args.newest[slot] = args.sampled[i] = std::max(args.id[yield - args.yield_row], 0);
      ++yield;
    }
  });
}

}  // namespace deepinfer::kernels
