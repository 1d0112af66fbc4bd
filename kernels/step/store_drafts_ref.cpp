#include "kernels/step/store_drafts.hpp"

#include <algorithm>

namespace deepinfer::kernels {

namespace {

void store(const store_drafts_args& a, std::int64_t i) {
  const std::int64_t drafts = a.after.drafts_max, row = a.row[i], slot = a.slot[i];
  auto* row_id = a.after.drafts + row * drafts;
  auto* row_confidence = a.after.confidence + row * drafts;
  if (slot < 0) {
    std::fill_n(row_id, drafts, -1);
    std::fill_n(row_confidence, drafts, 0.0f);
    return;
  }
  for (std::int64_t j = 0; j < drafts; ++j) {
    const auto id = a.id[i * drafts + j];
    const auto confidence = a.confidence ? a.confidence[i * drafts + j] : 1.0f;
    row_id[j] = id >= 0 && id < a.vocab ? id : 0;
    row_confidence[j] = confidence >= 0.0f ? std::min(confidence, 1.0f) : 0.0f;
  }
  std::copy_n(row_id, drafts, a.slots.drafts + slot * drafts);
  std::copy_n(row_confidence, drafts, a.slots.confidence + slot * drafts);
  a.after.draft_count[row] = a.slots.draft_count[slot] = a.after.drafts_max;
}

}  // namespace

void store_drafts_ref(const stream_ref& stream, const store_drafts_args& args) {
  stream.for_ranges(args.rows, [&args](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) store(args, i);
  });
}

}  // namespace deepinfer::kernels
