#include "kernels/step/advance_slots.hpp"

#include <algorithm>

namespace deepinfer::kernels {

namespace {

/// What the group's row leaves its sequence with goes to its slot first, then to the row.
void advance(const advance_slots_args& a, std::int64_t i) {
  const auto row = a.row[i], slot = a.slot[row];
  const auto begin = a.query_begin[i];
  const bool gave = a.query_begin[i + 1] > begin;
  if (gave) {
    const auto last = begin + a.given[i] - 1;
    a.slots.length[slot] = a.position[last];
    a.slots.newest[slot] = std::max(a.id[last], 0);
    a.slots.is_alive[slot] = a.is_alive[i];
  } else if (a.row_begin[row + 1] > a.row_begin[row]) {
    a.slots.length[slot] = a.first_position[row] + a.row_begin[row + 1] - a.row_begin[row];
  }
  a.slots.draft_count[slot] = 0;
  a.after.length[row] = a.slots.length[slot];
  a.after.newest[row] = a.slots.newest[slot];
  a.after.is_alive[row] = a.slots.is_alive[slot];
  a.after.draft_count[row] = 0;
  const bool drafts = gave && a.slots.is_alive[slot] != 0;
  a.draft_slot[i] = drafts ? slot : -1;
  a.draft_position[i] = drafts ? a.slots.length[slot] - 1 : -1;
  a.anchor[i] = drafts ? a.slots.newest[slot] : -1;
}

}  // namespace

void advance_slots_ref(const stream_ref& stream, const advance_slots_args& args) {
  stream.for_ranges(args.rows, [&args](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) advance(args, i);
  });
}

}  // namespace deepinfer::kernels
