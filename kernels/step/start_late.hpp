/// Notes, for sequences that start, from which position on the late layers have rows of them.
///   late_begin[slot[i]] = begin[i]
/// Shapes: slot and begin [starts]; late_begin [slots] out. starts == 0 is a legal call; slots of
/// one call are distinct. Source: model-v41.md 17.
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct start_late_args {
  const std::int32_t* slot = nullptr;
  const std::int32_t* begin = nullptr;
  std::int32_t starts = 0;
  std::int32_t* late_begin = nullptr;
};

void start_late_ref(const stream_ref& stream, const start_late_args& args);

}  // namespace deepinfer::kernels
