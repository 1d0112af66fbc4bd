#include "runtime/core/batch_policy.hpp"

#include <algorithm>
#include <tuple>

namespace deepinfer {

std::int64_t chunk_width(std::int64_t rest, std::int64_t chunk_size, std::int64_t budget) {
  const auto wanted = chunk_size > 0 ? std::min(rest, chunk_size) : rest;
  return std::max<std::int64_t>(0, std::min(wanted, budget));
}

void choose_decodes(std::vector<decode_candidate>& candidates, std::int64_t rows) {
  if (static_cast<std::int64_t>(candidates.size()) <= rows) return;
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return std::tie(a.planned, a.order) < std::tie(b.planned, b.order);
  });
  candidates.resize(static_cast<std::size_t>(std::max<std::int64_t>(0, rows)));
}

}  // namespace deepinfer
