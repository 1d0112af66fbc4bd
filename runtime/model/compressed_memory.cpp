#include "runtime/model/compressed_memory.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

const row_rotation& rotation_of(const forward_buffers& buffers, std::int32_t ratio) {
  for (const auto& it : buffers.rotations)
    if (it.ratio == ratio) return it;
  DI_CHECK(false, "no rotation for ratio {}", ratio);
  return buffers.rotations.front();
}

}  // namespace

void append_rows(const forward_context& context, std::int32_t layer,
                 const attention_weights& weights) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto index = static_cast<std::size_t>(layer);
  const auto ratio = config.layers[index].ratio;
  auto& state = context.state.layers[index];
  const auto tokens = context.tokens();
  const bool bf16 = context.rounding.bf16;

  const auto* hidden = buffers.hidden.data();
  // Sums over several tokens stay wide; a lone token's value rounds like any other product.
  context.linear(weights.compressor.wkv, hidden, buffers.pool_value.data(), tokens,
                 bf16 && ratio == 1);
  if (ratio > 1)
    context.linear(weights.compressor.wgate, hidden, buffers.pool_score.data(), tokens, false);
  kernels::pool_args pool;
  pool.batch = context.step.batch;
  pool.ratio = ratio;
  pool.value = buffers.pool_value.data();
  pool.score = ratio > 1 ? buffers.pool_score.data() : nullptr;
  pool.ring = ratio > 1 ? state.pooling.data() : nullptr;
  pool.ring_size = context.state.layout.layers[index].pool_ring;
  pool.dim = config.head_dim;
  pool.latent = buffers.latent.data();
  pool.bf16 = bf16;
  context.ops.pool(context.stream, pool);
  if (ratio > 1)
    context.ops.pool_store(context.stream, {pool.batch, pool.value, pool.score,
                                            state.pooling.data(), pool.ring_size, pool.dim});
  context.norm(weights.compressor.norm, buffers.latent.data(), buffers.latent.data(), tokens);

  // The index keys still need the unrotated latent: rotate a copy.
  const auto& rotation = rotation_of(buffers, ratio);
  auto* rows = buffers.pool_value.data();
  context.ops.quantise(context.stream, {buffers.latent.data(), rows, tokens, config.head_dim,
                                        kernels::quantiser::none});
  context.rope(rows, rotation.angles.data(), tokens, 1, config.head_dim);
  context.round_kv(rows, tokens, config.head_dim,
                   config.fp4_sparse_kv ? kernels::quantiser::q4_memory : kernels::quantiser::q8);
  context.ops.append(context.stream, {context.step.batch, ratio, rotation.position.data(), rows,
                                      state.rows.data(), config.head_dim});
}

void append_index_keys(const forward_context& context, std::int32_t layer,
                       const attention_weights& weights) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto index = static_cast<std::size_t>(layer);
  const auto ratio = config.layers[index].ratio;
  const auto tokens = context.tokens();
  auto* keys = buffers.index_key.data();
  const auto& rotation = rotation_of(buffers, ratio);
  context.linear(weights.index_keys.wk, buffers.latent.data(), keys, tokens, context.rounding.bf16);
  context.norm(weights.index_keys.norm, keys, keys, tokens);
  context.rope(keys, rotation.angles.data(), tokens, 1, config.index_head_dim);
  context.round_kv(keys, tokens, config.index_head_dim, kernels::quantiser::q4_index);
  context.ops.append(context.stream,
                     {context.step.batch, ratio, rotation.position.data(), keys,
                      context.state.layers[index].keys.data(), config.index_head_dim});
}

void select_rows(const forward_context& context, std::int32_t layer,
                 const attention_weights& weights, const float* query_input) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto& facts = config.layers[static_cast<std::size_t>(layer)];
  const auto tokens = context.tokens();
  const std::int64_t heads = config.index_head_count, dim = config.index_head_dim;
  const bool bf16 = context.rounding.bf16;
  context.linear(weights.indexer.wq_b, query_input, buffers.index_q.data(), tokens, bf16);
  context.rope(buffers.index_q.data(), buffers.compressed_angles.data(), tokens, heads, dim);
  context.round_kv(buffers.index_q.data(), tokens * heads, dim, kernels::quantiser::q4_index);
  context.linear(weights.indexer.weights_proj, buffers.hidden.data(), buffers.index_weight.data(),
                 tokens, bf16);

  kernels::index_scores_args score;
  score.batch = context.step.batch;
  score.ratio = facts.ratio;
  score.query = buffers.index_q.data();
  score.weight = buffers.index_weight.data();
  score.keys = context.state.layers[static_cast<std::size_t>(facts.index_key_source)].keys.data();
  score.heads = heads;
  score.dim = dim;
  score.score = buffers.scores.data();
  score.row_limit = std::max<std::int64_t>(context.step.position_limit / facts.ratio, 1);
  if (facts.candidates == candidate_role::masked) {
    score.candidates = buffers.candidates.data();
    score.candidate_count = config.candidate_blocks;
    score.candidate_size = config.candidate_block_size;
  }
  score.weight_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim * heads)));
  score.bf16 = bf16;
  const auto together = std::max<std::int64_t>(buffers.scores.size() / score.row_limit, 1);
  for (std::int64_t first = 0; first < tokens; first += together) {
    score.first = first;
    score.count = std::min(together, tokens - first);
    context.ops.index_scores(context.stream, score);
    if (facts.candidates == candidate_role::source)
      context.ops.candidate_blocks(context.stream,
                                   {score.batch, facts.ratio, first, score.count, score.score,
                                    score.row_limit, config.candidate_block_size,
                                    config.candidate_blocks, buffers.candidates.data()});
    context.ops.top_rows(context.stream,
                         {score.batch, facts.ratio, first, score.count, score.score,
                          score.row_limit, config.index_topk, buffers.selected.data()});
  }
  if (facts.candidates == candidate_role::source)
    context.show(model_point::candidate_blocks, layer, buffers.candidates.data(),
                 tokens * config.candidate_blocks);
  context.show(model_point::index_list, layer, buffers.selected.data(), tokens * config.index_topk);
}

}  // namespace deepinfer
