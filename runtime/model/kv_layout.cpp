#include "runtime/model/kv_layout.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "runtime/base/check.hpp"
#include "runtime/model/replay.hpp"

namespace deepinfer {

namespace {

constexpr auto float_bytes = static_cast<std::int64_t>(sizeof(float));
constexpr auto id_bytes = static_cast<std::int64_t>(sizeof(std::int32_t));

result<void> check_prefix_cache(const runner_config& runner) {
  if (runner.host_blocks < 0 || (runner.host_blocks > 0 && !runner.prefix_cache))
    return fail(errc::invalid_argument,
                fmt::format("prefix_host_blocks: found {}, expected {}", runner.host_blocks,
                            runner.prefix_cache ? "at least 0" : "0 without a prefix cache"));
  constexpr auto positions_max = std::numeric_limits<std::int32_t>::max();
  if (runner.resume_stride < 1 || runner.resume_stride > positions_max / runner.block_size)
    return fail(errc::invalid_argument,
                fmt::format("resume_stride: found {}, expected 1 to {} blocks of {}",
                            runner.resume_stride, positions_max / runner.block_size,
                            runner.block_size));
  return {};
}

result<void> check_sizes(const model_config& model, const runner_config& runner) {
  const auto positive = [](std::string_view name, std::int64_t found) -> result<void> {
    if (found >= 1) return {};
    return fail(errc::invalid_argument,
                fmt::format("{}: found {}, expected at least 1", name, found));
  };
  DI_TRY_VOID(positive("depth", runner.depth));
  DI_TRY_VOID(positive("state_slots", runner.state_slots));
  DI_TRY_VOID(positive("max_num_seqs", runner.max_num_seqs));
  DI_TRY_VOID(positive("max_num_batched_tokens", runner.max_num_batched_tokens));
  DI_TRY_VOID(positive("max_model_len", runner.max_model_len));
  DI_TRY_VOID(positive("num_kv_blocks", runner.num_kv_blocks));
  DI_TRY_VOID(positive("block_size", runner.block_size));
  if (runner.num_drafts < 0 || runner.draft_overhang < 0)
    return fail(errc::invalid_argument, fmt::format("num_drafts {} and draft_overhang {}: expected "
                                                    "at least 0",
                                                    runner.num_drafts, runner.draft_overhang));
  for (const auto& layer : model.layers)
    if (layer.ratio > 0 && runner.block_size % layer.ratio != 0)
      return fail(
        errc::invalid_argument,
        fmt::format("block_size: found {}, expected a multiple of the compression ratio {}",
                    runner.block_size, layer.ratio));
  return check_prefix_cache(runner);
}

/// `array` is [blocks, ...]; `offset` grows by what it has of a block.
template <class T>
void add_part(lazy_array<T>& array, std::int64_t blocks, std::int64_t& offset,
              std::vector<kernels::block_part>& parts) {
  if (array.size() == 0) return;
  const auto bytes = array.bytes() / blocks;
  parts.push_back({reinterpret_cast<std::byte*>(array.data()), bytes, offset});
  offset += bytes;
}

std::int64_t window_rings(const kv_layout& layout) {
  return std::count_if(layout.layers.begin(), layout.layers.end(),
                       [](const kv_layout::layer& it) { return it.has_window; });
}

template <class T>
void overwrite(lazy_array<T>& array, std::int64_t parts, std::int32_t part, T value) {
  if (array.size() == 0) return;
  const auto each = array.size() / parts;
  std::fill_n(array.data() + each * part, each, value);
}

}  // namespace

std::int64_t kv_layout::window_bytes() const {
  return window_rings(*this) * window_ring * head_dim * float_bytes;
}

std::int64_t kv_layout::resume_bytes() const {
  return window_rings(*this) * resume_rows * head_dim * float_bytes;
}

std::int64_t kv_layout::pooling_bytes() const {
  std::int64_t positions = 0;
  for (const auto& it : layers) positions += it.pool_ring;
  return positions * 2 * head_dim * float_bytes;
}

std::int64_t kv_layout::slot_bytes() const {
  const auto counters = late_layer == none ? 2 : 3;
  return window_bytes() + pooling_bytes() + (table_stride + counters) * id_bytes;
}

std::int64_t kv_layout::block_bytes() const {
  std::int64_t bytes = block_size * id_bytes + resume_bytes();
  for (const auto& it : layers)
    bytes += (std::int64_t{it.rows_per_block} * head_dim +
              std::int64_t{it.keys_per_block} * index_head_dim) *
             float_bytes;
  return bytes;
}

result<kv_layout> make_kv_layout(const model_config& model, const runner_config& runner,
                                 bool with_draft) {
  DI_TRY_VOID(check_sizes(model, runner));
  DI_TRY_VOID(check_replay(runner, model));
  const auto ahead = std::int64_t{runner.depth} * (1 + runner.num_drafts) + runner.draft_overhang;
  const auto table = (runner.max_model_len + ahead + runner.block_size - 1) / runner.block_size;
  if (table * runner.block_size > std::numeric_limits<std::int32_t>::max())
    return fail(errc::invalid_argument, fmt::format("max_model_len: found {}, expected positions "
                                                    "that fit 31 bits",
                                                    runner.max_model_len));
  kv_layout layout;
  layout.slots = runner.state_slots;
  layout.blocks = runner.num_kv_blocks;
  layout.block_size = runner.block_size;
  layout.table_stride = static_cast<std::int32_t>(table);
  layout.window_ring = model.window + static_cast<std::int32_t>(ahead);
  layout.head_dim = model.head_dim;
  layout.index_head_dim = model.index_head_dim;
  if (runner.prefix_cache) {
    layout.resume_every = runner.block_size * runner.resume_stride;
    layout.resume_rows = model.window - 1;  // a query sees its own row besides
    layout.host_blocks = runner.host_blocks;
  }
  if (runner.replay != replay_mode::off) {
    DI_TRY(layout.late_layer, late_layer_of(model));
  }
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const auto& from = model.layers[i];
    const bool is_stage = i >= static_cast<std::size_t>(model.layer_count);
    kv_layout::layer layer;
    layer.has_window = !is_stage || with_draft;
    if (from.owns_rows) {
      layer.pool_ring = from.ratio > 1 ? from.ratio + static_cast<std::int32_t>(ahead) : 0;
      layer.rows_per_block = runner.block_size / from.ratio;
    }
    if (from.owns_index_keys) layer.keys_per_block = runner.block_size / from.ratio;
    layout.layers.push_back(layer);
  }
  return layout;
}

kv_state::kv_state(kv_layout sizes) : layout(std::move(sizes)) {
  const std::int64_t slots = layout.slots, blocks = layout.blocks;
  for (const auto& from : layout.layers) {
    layer made;
    if (from.has_window)
      made.window = lazy_array<float>(slots * layout.window_ring * layout.head_dim);
    made.pooling = lazy_array<float>(slots * from.pool_ring * 2 * layout.head_dim);
    made.rows = lazy_array<float>(blocks * from.rows_per_block * layout.head_dim);
    made.keys = lazy_array<float>(blocks * from.keys_per_block * layout.index_head_dim);
    if (from.has_window)
      made.resume = lazy_array<float>(blocks * layout.resume_rows * layout.head_dim);
    layers.push_back(std::move(made));
  }
  tokens = lazy_array<std::int32_t>(blocks * layout.block_size);
  tables = lazy_array<std::int32_t>(slots * layout.table_stride);
  length = lazy_array<std::int32_t>(slots);
  newest = lazy_array<std::int32_t>(slots);
  if (layout.late_layer != kv_layout::none) late_begin = lazy_array<std::int32_t>(slots);
  host = lazy_array<std::byte>(layout.host_bytes());
  std::int64_t offset = 0;
  for (auto& it : layers)
    for (auto* array : {&it.rows, &it.keys, &it.resume})
      add_part(*array, blocks, offset, block_parts);
  add_part(tokens, blocks, offset, block_parts);
  DI_CHECK(offset == layout.block_bytes(), "the parts of a block have {} bytes, not {}", offset,
           layout.block_bytes());
  forget_all();
}

void kv_state::forget_all() {
  std::fill_n(tables.data(), tables.size(), -1);
  std::fill_n(length.data(), length.size(), 0);
  std::fill_n(newest.data(), newest.size(), -1);
}

void kv_state::poison(std::span<const block_id> freed_blocks,
                      std::span<const slot_id> freed_slots) {
  constexpr auto nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto block : freed_blocks) {
    DI_CHECK(block.value >= 0 && block.value < layout.blocks, "block {}", block.value);
    for (auto& it : layers) {
      overwrite(it.rows, layout.blocks, block.value, nan);
      overwrite(it.keys, layout.blocks, block.value, nan);
      overwrite(it.resume, layout.blocks, block.value, nan);
    }
    overwrite(tokens, layout.blocks, block.value, -1);
  }
  for (const auto slot : freed_slots) {
    DI_CHECK(slot.value >= 0 && slot.value < layout.slots, "slot {}", slot.value);
    for (auto& it : layers) {
      overwrite(it.window, layout.slots, slot.value, nan);
      overwrite(it.pooling, layout.slots, slot.value, nan);
    }
    overwrite(tables, layout.slots, slot.value, -1);
    length[slot.value] = -1;
    newest[slot.value] = -1;
    if (late_begin.size() > 0) late_begin[slot.value] = kv_layout::none;
  }
}

}  // namespace deepinfer
