#include "runtime/model/attention.hpp"

#include <cmath>

#include "runtime/model/compressed_memory.hpp"

namespace deepinfer {

const float* project_queries(const forward_context& context, const attention_weights& weights,
                             const float* angles) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto tokens = context.tokens();
  const bool bf16 = context.rounding.bf16;
  const auto* input =
    context.quantised(buffers.hidden.data(), buffers.hidden_q8, tokens, config.hidden_size);
  auto* latent = buffers.q_latent.data();
  context.linear(weights.wq_a, input, latent, tokens, bf16);
  context.norm(weights.q_norm, latent, latent, tokens);
  const auto* query_input = context.quantised(latent, buffers.q_latent_q8, tokens, config.q_rank);
  context.linear(weights.wq_b, query_input, buffers.q.data(), tokens, bf16);
  context.rope(buffers.q.data(), angles, tokens, config.head_count, config.head_dim);

  auto* rows = buffers.rows.data();
  context.linear(weights.wkv, input, rows, tokens, bf16);
  context.norm(weights.kv_norm, rows, rows, tokens);
  context.rope(rows, angles, tokens, 1, config.head_dim);
  context.round_kv(rows, tokens, config.head_dim, kernels::quantiser::q8);
  return query_input;
}

void project_output(const forward_context& context, const attention_weights& weights,
                    const float* angles) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto tokens = context.tokens();
  const bool bf16 = context.rounding.bf16;
  context.rope(buffers.attended.data(), angles, tokens, config.head_count, config.head_dim, true);
  kernels::grouped_linear_args args;
  args.weights = weights.wo_a.data();
  args.groups = config.o_groups;
  args.x = buffers.attended.data();
  args.y = buffers.grouped.data();
  args.rows = tokens;
  args.bf16 = bf16;
  context.ops.grouped_linear(context.stream, args);
  const auto* grouped = context.quantised(buffers.grouped.data(), buffers.grouped, tokens,
                                          std::int64_t{config.o_groups} * config.o_rank);
  context.linear(weights.wo_b, grouped, buffers.out.data(), tokens, bf16);
}

void run_attention(const forward_context& context, std::int32_t layer,
                   const attention_weights& weights) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto& facts = config.layers[static_cast<std::size_t>(layer)];
  auto& state = context.state.layers[static_cast<std::size_t>(layer)];
  const auto* angles =
    facts.ratio > 0 ? buffers.compressed_angles.data() : buffers.window_angles.data();
  const auto* query_input = project_queries(context, weights, angles);
  if (facts.owns_rows) append_rows(context, layer, weights);
  if (facts.owns_index_keys) append_index_keys(context, layer, weights);
  if (facts.runs_indexer) select_rows(context, layer, weights, query_input);

  kernels::sparse_attention_args args;
  args.batch = context.step.batch;
  args.q = buffers.q.data();
  args.step_rows = buffers.rows.data();
  args.ring = state.window.data();
  args.ring_size = context.state.layout.window_ring;
  args.window = config.window;
  args.ratio = facts.ratio;
  if (facts.ratio > 0) {
    args.memory = context.state.layers[static_cast<std::size_t>(facts.kv_source)].rows.data();
    args.selected = buffers.selected.data();
    args.selected_count = config.index_topk;
  }
  args.sink = weights.sink.data();
  args.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim)));
  args.o = buffers.attended.data();
  args.heads = config.head_count;
  args.dim = config.head_dim;
  args.bf16 = context.rounding.bf16;
  context.ops.sparse_attention(context.stream, args);
  context.ops.window_store(context.stream, {context.step.batch, buffers.rows.data(),
                                            state.window.data(), args.ring_size, config.head_dim});
  project_output(context, weights, angles);
}

}  // namespace deepinfer
