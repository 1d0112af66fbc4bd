#include <algorithm>

#include "kernels/step/start_slots.hpp"

namespace deepinfer::kernels {

void start_slots_ref(const stream_ref& stream, const start_slots_args& args) {
  stream.for_ranges(args.starts, [&args](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      const auto slot = args.slot[i];
      args.slots.length[slot] = args.position[i];
      args.slots.newest[slot] = -1;
      args.slots.is_alive[slot] = 1;
      args.slots.draft_count[slot] = 0;
      args.slot_params[slot] = args.sampling[i];
      std::fill_n(args.tables + std::int64_t{slot} * args.table_stride, args.table_stride, -1);
    }
  });
}

}  // namespace deepinfer::kernels
