#include "runtime/core/batch_policy.hpp"

#include "runtime/core/mutant.hpp"

#include <algorithm>
#include <tuple>

namespace deepinfer {

std::int64_t chunk_width(std::int64_t rest, std::int64_t chunk_size, std::int64_t budget) {
  const auto wanted = chunk_size > 0 ? std::min(rest, chunk_size) : rest;
  return std::max<std::int64_t>(0, std::min(wanted, budget));
}

void choose_decodes(std::vector<decode_candidate>& candidates, std::int64_t tokens) {
  std::int64_t wanted = 0;
  // Drafts not charged to the budget.
  for (const auto& it : candidates) wanted += mutant(12) ? 1 : it.width;
  if (wanted <= tokens) return;
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return std::tie(a.planned, a.order) < std::tie(b.planned, b.order);
  });
  auto last = candidates.begin();
  while (last != candidates.end() && last->width <= tokens) tokens -= last++->width;
  candidates.erase(last, candidates.end());
}

std::int32_t bucket_for(const std::vector<std::int32_t>& buckets, std::int64_t tokens) {
  const auto found = std::lower_bound(buckets.begin(), buckets.end(), tokens);
  return found == buckets.end() ? 0 : *found;
}

}  // namespace deepinfer
