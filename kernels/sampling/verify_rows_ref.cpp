#include "kernels/sampling/verify_rows.hpp"

namespace deepinfer::kernels {

namespace {

bool is_stop_id(const slot_sampling& s, std::int32_t id) {
  for (std::int32_t i = 0; i < s.stop_count; ++i) {
    const auto stop = i < slot_sampling::inline_stop_ids
                        ? s.stop_ids[i]
                        : s.more_stop_ids[i - slot_sampling::inline_stop_ids];
    if (id == stop) return true;
  }
  return false;
}

/// Whether `id`, the sequence's token at `position`, is its last.
bool ends(const slot_sampling& s, std::int32_t position, std::int32_t id) {
  const auto before = position - s.prompt_tokens;
  return (s.output_limit > 0 && before + 1 >= s.output_limit) ||
         (before >= s.min_tokens && is_stop_id(s, id));
}

void verify_row(const verify_rows_args& a, std::int64_t row) {
  const auto begin = a.query_begin[row], end = a.query_begin[row + 1];
  std::int32_t given = 0;
  bool is_alive = true;
  for (auto q = begin; q < end && is_alive; ++q) {
    ++given;
    if (a.stops) is_alive = a.id[q] >= 0 && !ends(a.sampling[a.slot[q]], a.position[q], a.id[q]);
    if (a.draft[q] < 0 || a.draft[q] != a.id[q]) break;
  }
  a.given[row] = given;
  a.is_alive[row] = is_alive ? 1 : 0;
}

}  // namespace

void verify_rows_ref(const stream_ref& stream, const verify_rows_args& args) {
  stream.for_ranges(args.rows, [&args](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row) verify_row(args, row);
  });
}

}  // namespace deepinfer::kernels
