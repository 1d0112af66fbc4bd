/// Gives a slot whose sequence starts behind cached blocks the window rows it needs of them.
///   ring[slot][q mod ring_size] = resume[block][q - (position - kept)]
/// for the positions q in [max(0, position - kept), position) of every start with a position > 0;
/// block is the one of its sequence that ends at `position`. Runs behind append_blocks.
/// Shapes: slot and position [starts]; tables [slots, table_stride]; resume [blocks, kept, dim];
/// ring [slots, ring_size, dim]. kept <= ring_size. Slots of one call are distinct.
/// Errors: a position that no resume point ends at, or without its block, aborts.
/// Source: model-v41.md 18; messages/plan.hpp (slot_start).
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct resume_load_args {
  const std::int32_t* slot = nullptr;
  const std::int32_t* position = nullptr;
  std::int32_t starts = 0;
  std::int32_t every = 1;  ///< positions between two resume points; a multiple of the block size
  const std::int32_t* tables = nullptr;
  std::int32_t table_stride = 0;
  std::int32_t block_size = 1;
  const float* resume = nullptr;
  std::int32_t kept = 0;
  std::int64_t dim = 0;
  float* ring = nullptr;
  std::int32_t ring_size = 0;
};

void resume_load_ref(const stream_ref& stream, const resume_load_args& args);

}  // namespace deepinfer::kernels
