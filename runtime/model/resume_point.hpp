/// What a sequence needs to go on behind a cached block and the block's own paged rows do not hold.
///
/// A query at position p reads, of what lies before it: window rows of p - window + 1 .. p - 1 in
/// every layer; compressed rows and keys of complete groups; ids, for Engram and for penalties; of
/// the pooling sums those of its own group. A draft pass reads context rows of as many positions in
/// its stages' rings. Rows, keys and ids are paged. Blocks are multiples of all ratios, so that at
/// a block's end no group is open. What is left are the last window - 1 rows of every ring: kept
/// beside every resume_stride-th block of a sequence, by the step that completes it, in stream
/// order. Who starts there has the bits of who computed everything.
///
/// Shapes: kv_layout (resume). Errors: positions without a resume point abort (DI_CHECK).
/// Source: architecture.md 6; model-v41.md 11.2, 14, 18.
#pragma once

#include <cstdint>

#include "kernels/step/copy_blocks.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/model/forward_context.hpp"
#include "runtime/model/kv_layout.hpp"

namespace deepinfer {

/// Once per forward, before its layers: which tokens of the step complete a resume point.
void list_resume_edges(const forward_context& context);

/// For the ring of `layer`, before the step's `rows` [tokens, head_dim] go into it.
void keep_resume_rows(const forward_context& context, std::int32_t layer, const float* rows);

/// Sequences that start at position[i] > 0 in slot[i] get their rings back; [starts], device
/// arrays. Their block tables are set.
void load_resume_rows(const stream_ref& stream, kv_state& state, const std::int32_t* slot,
                      const std::int32_t* position, std::int32_t starts);

/// Blocks to and from the host tier, in this order, before anything else a step does.
void move_blocks(const stream_ref& stream, kv_state& state, const kernels::block_copy* moves,
                 std::int32_t count);

}  // namespace deepinfer
