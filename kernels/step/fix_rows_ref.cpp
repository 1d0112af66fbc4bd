#include "kernels/step/fix_rows.hpp"

#include "runtime/base/check.hpp"

namespace deepinfer::kernels {

namespace {

/// The two places a carried row's id could be read from must agree.
void check_carried([[maybe_unused]] const fix_rows_args& args, [[maybe_unused]] std::int64_t row) {
#ifndef NDEBUG
  const auto source = args.source[row], slot = args.slot[row];
  if (source < 0) return;
  DI_CHECK(args.sampled[source] == args.newest[slot], "row {}: row {} sampled {}, slot {} holds {}",
           row, source, args.sampled[source], slot, args.newest[slot]);
#endif
}

}  // namespace

void fix_rows_ref(const stream_ref& stream, const fix_rows_args& args) {
  stream.for_ranges(args.rows, [&args](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      const auto slot = args.slot[i];
      const auto source = args.source[i];
      check_carried(args, i);
      const bool is_fresh = source == row_from_fresh;
      const auto first = is_fresh ? args.planned[i] : args.length[slot];
      const auto row_token = args.token_begin[i];
      args.next_position[i] = first + args.token_begin[i + 1] - row_token;
      for (auto t = row_token; t < args.token_begin[i + 1]; ++t) {
        args.token_id[t] = is_fresh ? args.fresh[args.fresh_begin[i] + t - row_token]
                           : source == row_from_slot ? args.newest[slot]
                                                     : args.sampled[source];
        args.token_slot[t] = slot;
        args.token_position[t] = first + t - row_token;
        args.row_token[t] = row_token;
        args.row_first[t] = first;
      }
    }
  });
  for (std::int32_t y = 0; y < args.yields; ++y)
    args.yield_position[y] = args.next_position[args.yield_row[y]];
}

}  // namespace deepinfer::kernels
