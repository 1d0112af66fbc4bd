#include "runtime/model/attention.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.hpp"
#include "runtime/model/product_list.hpp"
#include "runtime/model/resume_point.hpp"

namespace deepinfer {

namespace {

const row_rotation& rotation_of(const forward_buffers& buffers, std::int32_t ratio) {
  for (const auto& it : buffers.rotations)
    if (it.ratio == ratio) return it;
  DI_CHECK(false, "no rotation for ratio {}", ratio);
  return buffers.rotations.front();
}

/// The stages of queries and window rows, which every layer and draft stage has.
kernels::memory_rows_args query_and_window_rows(const forward_context& context,
                                                const attention_weights& weights,
                                                const float* angles) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto tokens = context.tokens();
  auto* latent = buffers.q_latent.data();
  auto* rows = buffers.rows.data();
  kernels::memory_rows_args args;
  args.tokens = tokens;
  args.query_norm = context.norm_args(weights.q_norm, latent, latent, tokens);
  args.query_round =
    context.round_input_args(latent, buffers.q_latent_input, tokens, config.q_rank);
  args.query_int8 = context.int8_input_args(latent, buffers.q_latent_input, tokens, config.q_rank);
  args.row_norm = context.norm_args(weights.kv_norm, rows, rows, tokens);
  args.row_rope = context.rope_args(rows, angles, tokens, 1, config.head_dim);
  args.row_round = context.round_kv_args(rows, tokens, config.head_dim, kernels::quantiser::q8);
  return args;
}

/// What the compressor makes of the sublayer's input.
void add_memory_products(const forward_context& context, std::int32_t ratio,
                         const compressor_weights& weights, product_list& products) {
  auto& buffers = context.buffers;
  const product_input hidden{buffers.hidden.data(), {}};
  // Sums over several tokens stay wide; a lone token's value rounds like any other product.
  products.add(weights.wkv, hidden, buffers.pool_value.data(), context.rounding.bf16 && ratio == 1);
  if (ratio > 1) products.add(weights.wgate, hidden, buffers.pool_score.data(), false);
}

/// The stages of a layer that appends compressed rows. The index keys still need the unrotated
/// latent: a copy is rotated.
void add_memory_rows(const forward_context& context, std::int32_t layer,
                     const compressor_weights& weights, kernels::memory_rows_args& args) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto index = static_cast<std::size_t>(layer);
  const auto ratio = config.layers[index].ratio;
  auto& state = context.state.layers[index];
  const auto tokens = context.tokens();
  const auto& rotation = rotation_of(buffers, ratio);
  auto* latent = buffers.latent.data();
  auto* rows = buffers.memory.data();
  args.pool.batch = context.step.batch;
  args.pool.ratio = ratio;
  args.pool.value = buffers.pool_value.data();
  args.pool.score = ratio > 1 ? buffers.pool_score.data() : nullptr;
  args.pool.ring = ratio > 1 ? state.pooling.data() : nullptr;
  args.pool.ring_size = context.state.layout.layers[index].pool_ring;
  args.pool.dim = config.head_dim;
  args.pool.latent = latent;
  args.pool.bf16 = context.rounding.bf16;
  args.latent_norm = context.norm_args(weights.norm, latent, latent, tokens);
  args.memory_copy = {latent, rows, tokens, config.head_dim, kernels::quantiser::none};
  args.memory_rope = context.rope_args(rows, rotation.angles.data(), tokens, 1, config.head_dim);
  args.memory_round = context.round_kv_args(rows, tokens, config.head_dim,
                                            config.fp4_sparse_kv ? kernels::quantiser::q4_memory
                                                                 : kernels::quantiser::q8);
  args.append = {context.step.batch, ratio,          rotation.position.data(), rows,
                 state.rows.data(),  config.head_dim};
}

/// Runs the stages, then keeps the sums of a layer that pools.
void run_memory_rows(const forward_context& context, std::int32_t layer,
                     const kernels::memory_rows_args& rows) {
  context.ops.memory_rows(context.stream, rows);
  const auto& pool = rows.pool;
  if (!pool.ring) return;
  auto* ring = context.state.layers[static_cast<std::size_t>(layer)].pooling.data();
  context.ops.pool_store(context.stream,
                         {pool.batch, pool.value, pool.score, ring, pool.ring_size, pool.dim});
}

/// Index keys of a source and index queries of a layer that scores, ready to be compared; either.
void make_index_rows(const forward_context& context, std::int32_t layer,
                     const attention_weights& weights, bool makes_keys, bool makes_queries) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto index = static_cast<std::size_t>(layer);
  const auto& facts = config.layers[index];
  const auto tokens = context.tokens();
  const std::int64_t heads = config.index_head_count, dim = config.index_head_dim;
  kernels::index_rows_args args;
  args.tokens = tokens;
  if (makes_keys) {
    auto* keys = buffers.index_key.data();
    const auto& rotation = rotation_of(buffers, facts.ratio);
    args.key_norm = context.norm_args(weights.index_keys.norm, keys, keys, tokens);
    args.key_rope = context.rope_args(keys, rotation.angles.data(), tokens, 1, dim);
    args.key_round = context.round_kv_args(keys, tokens, dim, kernels::quantiser::q4_index);
    args.append = {context.step.batch,
                   facts.ratio,
                   rotation.position.data(),
                   keys,
                   context.state.layers[index].keys.data(),
                   dim};
  }
  if (makes_queries) {
    auto* queries = buffers.index_q.data();
    args.query_rope =
      context.rope_args(queries, buffers.compressed_angles.data(), tokens, heads, dim);
    args.query_round =
      context.round_kv_args(queries, tokens * heads, dim, kernels::quantiser::q4_index);
  }
  context.ops.index_rows(context.stream, args);
}

/// Scores what each token sees and leaves the list in buffers.selected, for this layer and those
/// after it; the candidate source also leaves buffers.candidates.
void select_rows(const forward_context& context, std::int32_t layer) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto& facts = config.layers[static_cast<std::size_t>(layer)];
  const std::int64_t heads = config.index_head_count, dim = config.index_head_dim;
  kernels::select_rows_args args;
  auto& score = args.scores;
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
  score.bf16 = context.rounding.bf16;
  args.score_rows = std::max<std::int64_t>(buffers.scores.size() / score.row_limit, 1);
  args.k = config.index_topk;
  args.selected = buffers.selected.data();
  if (facts.candidates == candidate_role::source) {
    args.block_size = config.candidate_block_size;
    args.block_k = config.candidate_blocks;
    args.blocks = buffers.candidates.data();
  }
  context.ops.select_rows(context.stream, args);
  const auto tokens = context.tokens();
  if (facts.candidates == candidate_role::source)
    context.show(model_point::candidate_blocks, layer, buffers.candidates.data(),
                 tokens * config.candidate_blocks);
  context.show(model_point::index_list, layer, buffers.selected.data(), tokens * config.index_topk);
}

/// What both kinds of attention have in common; runs it with the rotations around it and leaves
/// buffers.out.
void attend(const forward_context& context, const attention_weights& weights, const float* angles,
            kernels::attend_rows_args& args) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto tokens = context.tokens();
  const bool bf16 = context.rounding.bf16;
  args.q = buffers.q.data();
  args.angles = angles;
  args.rotary = config.rope_dim;
  // A head's int8 groups are its own where they fit its width.
  const bool makes_int8 =
    context.rounding.int8_inputs && config.head_dim % kernels::int8_group == 0;
  if (makes_int8) {
    args.codes = buffers.attended_input.codes.data();
    args.scales = buffers.attended_input.scales.data();
  }
  context.ops.attend_rows(context.stream, args);

  const auto* attended = buffers.attended.data();
  kernels::grouped_linear_args groups;
  groups.weights = weights.wo_a.data();
  groups.groups = config.o_groups;
  groups.x = attended;
  groups.x8 = makes_int8
                ? context.made_input(attended, buffers.attended_input).x8
                : context
                    .wide_input_of(attended, buffers.attended_input, tokens * config.o_groups,
                                   config.head_count / config.o_groups * config.head_dim)
                    .x8;
  groups.y = buffers.grouped.data();
  groups.rows = tokens;
  groups.bf16 = bf16;
  context.part("attention products");
  context.ops.grouped_linear(context.stream, groups);
  const auto grouped = context.input_of(buffers.grouped.data(), buffers.grouped_input, tokens,
                                        std::int64_t{config.o_groups} * config.o_rank);
  context.linear(weights.wo_b, grouped, buffers.out.data(), tokens, bf16);
}

template <class Args>
void fill_attention(const forward_context& context, std::int32_t layer,
                    const attention_weights& weights, Args& args) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  args.q = buffers.q.data();
  args.ring = context.state.layers[static_cast<std::size_t>(layer)].window.data();
  args.ring_size = context.state.layout.window_ring;
  args.window = config.window;
  if (layer >= context.state.layout.late_layer) args.window_begin = context.state.late_begin.data();
  args.sink = weights.sink.data();
  args.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim)));
  args.o = buffers.attended.data();
  args.heads = config.head_count;
  args.dim = config.head_dim;
  args.bf16 = context.rounding.bf16;
}

}  // namespace

void run_attention(const forward_context& context, std::int32_t layer,
                   const attention_weights& weights, const product_input& input,
                   memory_stage memory) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto& facts = config.layers[static_cast<std::size_t>(layer)];
  auto& state = context.state.layers[static_cast<std::size_t>(layer)];
  const bool bf16 = context.rounding.bf16;
  const auto* angles =
    facts.ratio > 0 ? buffers.compressed_angles.data() : buffers.window_angles.data();
  const bool makes_rows = facts.owns_rows && memory == memory_stage::due;
  const bool makes_keys = facts.owns_index_keys && memory == memory_stage::due;

  context.part("attention products");
  product_list of_input(context);
  of_input.add(weights.wq_a, input, buffers.q_latent.data(), bf16);
  of_input.add(weights.wkv, input, buffers.rows.data(), bf16);
  if (makes_rows) add_memory_products(context, facts.ratio, weights.compressor, of_input);
  if (facts.runs_indexer)
    of_input.add(weights.indexer.weights_proj, {buffers.hidden.data(), {}},
                 buffers.index_weight.data(), bf16);
  of_input.run();

  context.part("attention rows");
  auto rows = query_and_window_rows(context, weights, angles);
  if (makes_rows) add_memory_rows(context, layer, weights.compressor, rows);
  run_memory_rows(context, layer, rows);

  context.part("attention products");
  const auto queries = context.made_input(buffers.q_latent.data(), buffers.q_latent_input);
  product_list of_latents(context);
  of_latents.add(weights.wq_b, queries, buffers.q.data(), bf16);
  if (facts.runs_indexer)
    of_latents.add(weights.indexer.wq_b, queries, buffers.index_q.data(), bf16);
  if (makes_keys)
    of_latents.add(weights.index_keys.wk, {buffers.latent.data(), {}}, buffers.index_key.data(),
                   bf16);
  of_latents.run();

  context.part("index");
  if (makes_keys || facts.runs_indexer)
    make_index_rows(context, layer, weights, makes_keys, facts.runs_indexer);
  if (facts.runs_indexer) select_rows(context, layer);

  context.part("attention");
  kernels::attend_rows_args args;
  fill_attention(context, layer, weights, args.sparse);
  args.sparse.batch = context.step.batch;
  args.sparse.step_rows = buffers.rows.data();
  args.sparse.ratio = facts.ratio;
  if (facts.ratio > 0) {
    args.sparse.memory =
      context.state.layers[static_cast<std::size_t>(facts.kv_source)].rows.data();
    args.sparse.selected = buffers.selected.data();
    args.sparse.selected_count = config.index_topk;
  }
  attend(context, weights, angles, args);
  context.part("attention rows");
  keep_resume_rows(context, layer, buffers.rows.data());
  context.ops.window_store(context.stream,
                           {context.step.batch, buffers.rows.data(), state.window.data(),
                            context.state.layout.window_ring, config.head_dim});
}

void make_memory(const forward_context& context, std::int32_t layer,
                 const attention_weights& weights) {
  auto& buffers = context.buffers;
  context.part("attention products");
  product_list of_input(context);
  add_memory_products(context, context.config.layers[static_cast<std::size_t>(layer)].ratio,
                      weights.compressor, of_input);
  of_input.run();
  context.part("attention rows");
  kernels::memory_rows_args rows;
  rows.tokens = context.tokens();
  add_memory_rows(context, layer, weights.compressor, rows);
  run_memory_rows(context, layer, rows);
  context.part("index");
  context.linear(weights.index_keys.wk, {buffers.latent.data(), {}}, buffers.index_key.data(),
                 context.tokens(), context.rounding.bf16);
  make_index_rows(context, layer, weights, true, false);
}

void run_draft_attention(const forward_context& context, std::int32_t layer,
                         const attention_weights& weights, const product_input& input,
                         const draft_block& block) {
  auto& buffers = context.buffers;
  const bool bf16 = context.rounding.bf16;
  const auto* angles = buffers.window_angles.data();
  context.part("attention products");
  product_list of_input(context);
  of_input.add(weights.wq_a, input, buffers.q_latent.data(), bf16);
  of_input.add(weights.wkv, input, buffers.rows.data(), bf16);
  of_input.run();
  context.part("attention rows");
  context.ops.memory_rows(context.stream, query_and_window_rows(context, weights, angles));
  context.part("attention products");
  context.linear(weights.wq_b, context.made_input(buffers.q_latent.data(), buffers.q_latent_input),
                 buffers.q.data(), context.tokens(), bf16);
  context.part("attention");
  kernels::attend_rows_args args;
  fill_attention(context, layer, weights, args.block);
  args.block.sequences = block.sequences;
  args.block.block = block.drafts;
  args.block.slot = block.slot;
  args.block.position = block.position;
  args.block.block_rows = buffers.rows.data();
  attend(context, weights, angles, args);
}

}  // namespace deepinfer
