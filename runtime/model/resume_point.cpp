#include "runtime/model/resume_point.hpp"

#include <algorithm>

#include "kernels/step/resume_edges.hpp"
#include "kernels/step/resume_load.hpp"
#include "kernels/step/resume_store.hpp"
#include "runtime/base/check.hpp"

namespace deepinfer {

void list_resume_edges(const forward_context& context) {
  const auto every = context.state.layout.resume_every;
  if (every == 0) return;
  auto& buffers = context.buffers;
  kernels::resume_edges_ref(context.stream, {context.step.batch, every, buffers.resume_edges.data(),
                                             buffers.resume_edge_count.data()});
}

void keep_resume_rows(const forward_context& context, std::int32_t layer, const float* rows) {
  const auto& layout = context.state.layout;
  if (layout.resume_every == 0) return;
  auto& state = context.state.layers[static_cast<std::size_t>(layer)];
  kernels::resume_store_args args;
  args.batch = context.step.batch;
  args.edge = context.buffers.resume_edges.data();
  args.count = context.buffers.resume_edge_count.data();
  args.rows = rows;
  args.ring = state.window.data();
  args.ring_size = layout.window_ring;
  args.kept = layout.resume_rows;
  args.dim = layout.head_dim;
  args.resume = state.resume.data();
  kernels::resume_store_ref(context.stream, args);
}

void load_resume_rows(const stream_ref& stream, kv_state& state, const std::int32_t* slot,
                      const std::int32_t* position, std::int32_t starts) {
  const auto& layout = state.layout;
  if (layout.resume_every == 0) {
    DI_CHECK(std::all_of(position, position + starts, [](std::int32_t it) { return it == 0; }),
             "a sequence starts behind cached blocks, which hold no resume points");
    return;
  }
  kernels::resume_load_args args;
  args.slot = slot;
  args.position = position;
  args.starts = starts;
  args.every = layout.resume_every;
  args.tables = state.tables.data();
  args.table_stride = layout.table_stride;
  args.block_size = layout.block_size;
  args.kept = layout.resume_rows;
  args.dim = layout.head_dim;
  args.ring_size = layout.window_ring;
  for (auto& layer : state.layers) {
    if (layer.window.size() == 0) continue;
    args.resume = layer.resume.data();
    args.ring = layer.window.data();
    kernels::resume_load_ref(stream, args);
  }
}

void move_blocks(const stream_ref& stream, kv_state& state, const kernels::block_copy* moves,
                 std::int32_t count) {
  kernels::copy_blocks_args args;
  args.parts = state.block_parts.data();
  args.part_count = static_cast<std::int32_t>(state.block_parts.size());
  args.blocks = state.layout.blocks;
  args.copies = moves;
  args.count = count;
  args.arena = state.host.data();
  args.place_bytes = state.layout.block_bytes();
  args.places = state.layout.host_blocks;
  kernels::copy_blocks_ref(stream, args);
}

}  // namespace deepinfer
