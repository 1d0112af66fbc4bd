/// What sequences carry from step to step on the device: the slots' columns beside kv_state's, and
/// the same for the rows of one step.
/// Shapes: kernels/step/carried.hpp. Errors: std::bad_alloc, as of lazy_array.
/// Source: architecture.md 3 (remap).
#pragma once

#include <cstdint>

#include "kernels/step/carried.hpp"
#include "runtime/model/lazy_array.hpp"

namespace deepinfer {

/// Of slots; length and newest lie in kv_state.
struct carried_columns {
  carried_columns(std::int32_t places, std::int32_t most_drafts)
    : drafts_max(most_drafts),
      is_alive(places),
      draft_count(places),
      drafts(std::int64_t{places} * most_drafts),
      confidence(std::int64_t{places} * most_drafts) {}

  kernels::carried_view view(std::int32_t* length, std::int32_t* newest) {
    return {drafts_max,         length,        newest,           is_alive.data(),
            draft_count.data(), drafts.data(), confidence.data()};
  }

  std::int32_t drafts_max;
  lazy_array<std::int32_t> is_alive, draft_count;  ///< [places]
  lazy_array<std::int32_t> drafts;                 ///< [places, drafts_max]
  lazy_array<float> confidence;                    ///< [places, drafts_max]
};

/// Of the rows of one step.
struct row_columns {
  row_columns(std::int32_t rows, std::int32_t drafts)
    : length(rows),
      newest(rows),
      carried(rows, drafts) {}

  kernels::carried_view view() { return carried.view(length.data(), newest.data()); }

  lazy_array<std::int32_t> length, newest;  ///< [rows]
  carried_columns carried;
};

}  // namespace deepinfer
