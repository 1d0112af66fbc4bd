#include "actors/node/bench/bench_layer_data.hpp"

#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "runtime/base/random.hpp"

namespace deepinfer::bench_layer {

floats noise(std::int64_t count, float scale) {
  floats out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] =
      scale * static_cast<float>(2 * unit_real(static_cast<std::uint32_t>(split_mix64(i + 7))) - 1);
  return out;
}

floats equal_angles(std::int64_t tokens) {
  floats out(static_cast<std::size_t>(tokens * rotary));
  for (std::size_t i = 0; i < out.size(); i += 2) {
    out[i] = 0.6F;
    out[i + 1] = 0.8F;
  }
  return out;
}

std::int64_t paged_rows(std::int64_t tokens) {
  return (decode_batch::blocks - 1 + tokens) * block_size;
}

decode_batch::decode_batch(std::int64_t tokens)
  : slot(static_cast<std::size_t>(tokens)),
    position(slot.size(), visible_rows - 1),
    first(slot.size()),
    table(slot.size() * blocks) {
  std::iota(slot.begin(), slot.end(), 0);
  first = slot;
  constexpr auto shared = static_cast<std::size_t>(blocks) - 1;
  for (std::size_t row = 0; row < slot.size(); ++row)
    for (std::size_t i = 0; i <= shared; ++i)
      table[row * blocks + i] =
        static_cast<std::int32_t>(i < shared ? i * 8 % shared : shared + row);
}

kernels::batch_view decode_batch::view() const {
  return {static_cast<std::int32_t>(slot.size()),
          slot.data(),
          position.data(),
          first.data(),
          position.data(),
          table.data(),
          blocks,
          block_size};
}

attention_data::attention_data(std::int64_t tokens)
  : batch(tokens),
    q(noise(tokens * heads * head_dim)),
    step_rows(noise(tokens * head_dim)),
    ring(noise(tokens * window * head_dim)),
    memory(noise(paged_rows(tokens) * head_dim)),
    sink(noise(heads)),
    o(q.size()),
    angles(equal_angles(tokens)),
    selected(static_cast<std::size_t>(tokens * selected_rows)),
    codes(q.size()),
    scales(q.size() / kernels::int8_group) {
  for (std::size_t i = 0; i < selected.size(); ++i)
    selected[i] = static_cast<std::int32_t>(i % selected_rows * (visible_rows / selected_rows));
}

kernels::sparse_attention_args attention_data::sparse_args() {
  kernels::sparse_attention_args args;
  args.batch = batch.view();
  args.q = q.data();
  args.step_rows = step_rows.data();
  args.ring = ring.data();
  args.ring_size = window;
  args.window = window;
  args.ratio = 1;
  args.memory = memory.data();
  args.selected = selected.data();
  args.selected_count = selected_rows;
  args.sink = sink.data();
  args.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  args.o = o.data();
  args.heads = heads;
  args.dim = head_dim;
  return args;
}

std::string attention_shape() {
  return fmt::format("{} heads of {}, {} + {} rows", heads, head_dim, window, selected_rows);
}

index_data::index_data(std::int64_t tokens)
  : batch(tokens),
    query(noise(tokens * index_heads * index_dim)),
    weight(noise(tokens * index_heads)),
    keys(noise(paged_rows(tokens) * index_dim)),
    score(noise(tokens * visible_rows)),
    selected(static_cast<std::size_t>(tokens * selected_rows)) {}

kernels::index_scores_args index_data::score_args() {
  kernels::index_scores_args args;
  args.batch = batch.view();
  args.count = args.batch.tokens;
  args.query = query.data();
  args.weight = weight.data();
  args.keys = keys.data();
  args.heads = index_heads;
  args.dim = index_dim;
  args.score = score.data();
  args.row_limit = visible_rows;
  return args;
}

std::string index_shape() {
  return fmt::format("{} heads of {}, {} rows", index_heads, index_dim, visible_rows);
}

}  // namespace deepinfer::bench_layer
