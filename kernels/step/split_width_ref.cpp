#include "kernels/step/split_width.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer::kernels {

namespace {

/// Most query tokens of a row; 0 where its sequence has ended.
std::int32_t width_limit(const split_width_args& a, std::int32_t row) {
  const auto source = a.source[row], slot = a.slot[row];
  const auto& from = source >= 0 ? a.before : a.slots;
  const auto place = source >= 0 ? source : slot;
  if (from.is_alive[place] == 0) return 0;
  if (source == row_from_fresh) return a.width[row];
  return std::min(a.width[row], 1 + from.draft_count[place]);
}

/// Confidence of a row's draft j.
float confidence_of(const split_width_args& a, std::int32_t row, std::int32_t draft) {
  const auto source = a.source[row];
  const auto& from = source >= 0 ? a.before : a.slots;
  const std::int64_t place = source >= 0 ? source : a.slot[row];
  return draft < from.draft_count[place] ? from.confidence[place * from.drafts_max + draft] : 1.0f;
}

/// Widens rows from one token each, the likeliest draft first. `width` is row_begin + 1.
void split(const split_width_args& a, std::int32_t* width) {
  const auto comes_later = [&a](std::int32_t left, std::int32_t right) {
    return a.survival[left] != a.survival[right] ? a.survival[left] < a.survival[right]
                                                 : left > right;
  };
  std::int32_t size = 0;
  // The row's next draft joins the heap, if there is one: `width` holds 1 + its drafts so far.
  const auto offer = [&](std::int32_t row, float survival) {
    if (width[row] >= width_limit(a, row)) return;
    a.survival[row] = survival * confidence_of(a, row, width[row] - 1);
    a.heap[size++] = row;
    std::push_heap(a.heap, a.heap + size, comes_later);
  };
  for (std::int32_t row = 0; row < a.rows; ++row) {
    width[row] = std::min(width_limit(a, row), 1);
    offer(row, 1.0f);
  }
  for (auto left = a.tokens - a.rows; left > 0 && size > 0; --left) {
    std::pop_heap(a.heap, a.heap + size, comes_later);
    const auto row = a.heap[--size];
    ++width[row];
    offer(row, a.survival[row]);
  }
}

}  // namespace

void split_width_ref(const stream_ref&, const split_width_args& a) {
  if (a.rows == 0) return;
  auto* width = a.row_begin + 1;
  std::int64_t planned = 0;
  for (std::int32_t row = 0; row < a.rows; ++row) planned += a.width[row];
  if (a.tokens < planned) {
    DI_CHECK(a.tokens >= a.rows, "{} rows share {} tokens", a.rows, a.tokens);
    split(a, width);
  } else {
    for (std::int32_t row = 0; row < a.rows; ++row) width[row] = width_limit(a, row);
  }
  a.row_begin[0] = 0;
  for (std::int32_t row = 0; row < a.rows; ++row) width[row] += a.row_begin[row];
  DI_CHECK(a.row_begin[a.rows] <= a.tokens, "rows have {} tokens, the step {}", a.row_begin[a.rows],
           a.tokens);
}

}  // namespace deepinfer::kernels
