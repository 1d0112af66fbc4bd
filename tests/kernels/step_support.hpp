/// Columns of what sequences carry from step to step, for tests of the step kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/step/carried.hpp"

namespace deepinfer::kernels {

using ints = std::vector<std::int32_t>;

struct places {
  places(std::int32_t count, std::int32_t most_drafts)
    : drafts_max(most_drafts),
      length(static_cast<std::size_t>(count), -7),
      newest(length),
      is_alive(length),
      draft_count(length),
      drafts(static_cast<std::size_t>(count * most_drafts), -7),
      confidence(drafts.size(), -7.0f) {}

  void set(std::int32_t place, std::int32_t at, std::int32_t id, const ints& draft_ids,
           const std::vector<float>& chances, std::int32_t alive = 1) {
    const auto i = static_cast<std::size_t>(place);
    const auto first = place * drafts_max;
    length[i] = at;
    newest[i] = id;
    is_alive[i] = alive;
    draft_count[i] = static_cast<std::int32_t>(draft_ids.size());
    std::copy(draft_ids.begin(), draft_ids.end(), drafts.begin() + first);
    std::copy(chances.begin(), chances.end(), confidence.begin() + first);
  }
  carried_view view() {
    return {drafts_max,         length.data(), newest.data(),    is_alive.data(),
            draft_count.data(), drafts.data(), confidence.data()};
  }

  std::int32_t drafts_max;
  ints length, newest, is_alive, draft_count, drafts;
  std::vector<float> confidence;
};

}  // namespace deepinfer::kernels
