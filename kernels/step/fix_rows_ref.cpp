#include "kernels/step/fix_rows.hpp"

#include "runtime/base/check.hpp"

namespace deepinfer::kernels {

namespace {

/// The two places a carried row's values could be read from must agree.
void check_carried([[maybe_unused]] const fix_rows_args& args, [[maybe_unused]] std::int64_t row) {
#ifndef NDEBUG
  const std::int64_t source = args.source[row], slot = args.slot[row];
  if (source < 0) return;
  const auto& rows = args.before;
  const auto& slots = args.slots;
  const auto check = [&](const char* what, auto in_row, auto in_slot) {
    DI_CHECK(in_row == in_slot, "row {}: {} is {} in row {}, {} in slot {}", row, what, in_row,
             source, in_slot, slot);
  };
  check("length", rows.length[source], slots.length[slot]);
  check("newest", rows.newest[source], slots.newest[slot]);
  check("is_alive", rows.is_alive[source], slots.is_alive[slot]);
  check("draft_count", rows.draft_count[source], slots.draft_count[slot]);
  for (std::int32_t j = 0; j < rows.draft_count[source]; ++j) {
    const auto in_row = source * rows.drafts_max + j, in_slot = slot * slots.drafts_max + j;
    check("a draft", rows.drafts[in_row], slots.drafts[in_slot]);
    check("a confidence", rows.confidence[in_row], slots.confidence[in_slot]);
  }
#endif
}

void fix_row(const fix_rows_args& args, std::int64_t row) {
  const auto source = args.source[row], slot = args.slot[row];
  const bool is_fresh = source == row_from_fresh;
  const auto& from = source >= 0 ? args.before : args.slots;
  const std::int64_t place = source >= 0 ? source : slot;
  const auto first = is_fresh ? args.planned[row] : from.length[place];
  args.first_position[row] = first;
  const auto begin = args.row_begin[row];
  for (auto t = begin; t < args.row_begin[row + 1]; ++t) {
    const auto j = t - begin;
    args.token_id[t] = is_fresh ? args.fresh[args.fresh_begin[row] + j]
                       : j == 0 ? from.newest[place]
                                : from.drafts[place * from.drafts_max + j - 1];
    args.token_slot[t] = slot;
    args.token_position[t] = first + j;
    args.row_token[t] = begin;
    args.row_first[t] = first;
  }
}

}  // namespace

void fix_rows_ref(const stream_ref& stream, const fix_rows_args& args) {
  stream.for_ranges(args.rows, [&args](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row) {
      check_carried(args, row);
      fix_row(args, row);
    }
  });
  for (auto t = args.rows > 0 ? args.row_begin[args.rows] : 0; t < args.tokens; ++t) {
    args.token_id[t] = args.token_slot[t] = args.token_position[t] = args.row_first[t] = -1;
    args.row_token[t] = t;
  }
}

}  // namespace deepinfer::kernels
