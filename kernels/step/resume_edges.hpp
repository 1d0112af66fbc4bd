/// Lists the tokens of a step that complete a block which keeps what a sequence needs to go on
/// behind it: those at positions p with (p + 1) mod every == 0.
///   edge[0 .. *count) = these tokens, ascending
/// Drafts that are rejected later are listed as well: what is kept for them is kept again when
/// their position is written for good, before anybody may resume there.
/// Shapes: edge [tokens], count [1], both out. Padding completes nothing.
/// Source: architecture.md 6 (resume points).
#pragma once

#include <cstdint>

#include "kernels/common/batch.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct resume_edges_args {
  batch_view batch;
  std::int32_t every = 1;  ///< positions between two edges; a multiple of the block size
  std::int32_t* edge = nullptr;
  std::int32_t* count = nullptr;
};

void resume_edges_ref(const stream_ref& stream, const resume_edges_args& args);

}  // namespace deepinfer::kernels
