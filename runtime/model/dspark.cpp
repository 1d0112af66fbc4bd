#include "runtime/model/dspark.hpp"

#include <algorithm>

#include "kernels/step/draft_tokens.hpp"
#include "runtime/base/check.hpp"
#include "runtime/model/attention.hpp"
#include "runtime/model/moe.hpp"
#include "runtime/model/product_list.hpp"
#include "runtime/model/resume_point.hpp"
#include "runtime/model/sublayer.hpp"

namespace deepinfer {

namespace {

/// Leaves the streams up to date.
void run_stages(const forward_context& context, const model_weights& weights,
                const draft_pass& pass) {
  const auto& config = context.config;
  const draft_block drafts{pass.sequences, pass.drafts, pass.slot, pass.position};
  unfinished before;
  for (std::int32_t stage = 0; stage < config.draft.stage_count; ++stage) {
    const auto layer = config.layer_count + stage;
    const auto& block = weights.blocks[static_cast<std::size_t>(layer)];
    const auto input = begin_attention(context, before, block);
    run_draft_attention(context, layer, block.attention, input, drafts);
    const auto chosen = config.draft.experts_per_token;
    const auto expert_input = begin_experts(context, block, chosen);
    before = run_experts(context, block.moe, expert_input, chosen);
  }
  finish_sublayer(context, before);
}

/// Draft i + 1 depends on draft i: the Markov correction, the choice and the confidence, serially.
/// buffers.out holds the collapsed rows before the norm.
void choose_drafts(const forward_context& context, const draft_weights& weights,
                   draft_buffers& buffers, const draft_pass& pass, std::int64_t first) {
  const auto& config = context.config;
  const std::int64_t drafts = pass.drafts, count = pass.sequences;
  const std::int64_t vocab = config.vocab_size, rank = config.draft.markov_rank;
  auto* previous = buffers.id.data();  // the first `count` entries: free once the streams are made
  std::copy_n(pass.anchor, count, previous);
  context.part("draft choice");
  for (std::int32_t i = 0; i < pass.drafts; ++i) {
    auto* logits = buffers.logits.data() + i * vocab;
    kernels::lookup_args lookup;
    lookup.table = &weights.markov_embed;
    lookup.index32 = previous;
    lookup.y = buffers.markov.data();
    lookup.count = count;
    lookup.bf16 = context.rounding.bf16;
    context.ops.lookup(context.stream, lookup);
    kernels::linear_args correction;
    correction.weight = &weights.markov_head;
    const auto input =
      context.wide_input_of(buffers.markov.data(), buffers.markov_input, count, rank);
    correction.x = input.x;
    correction.x8 = input.x8;
    correction.y = logits;
    correction.rows = count;
    correction.y_stride = drafts * vocab;
    correction.accumulate = true;
    context.ops.linear(context.stream, correction);
    if (pass.chooser)
      pass.chooser->choose(context.stream, i, first, count, logits, drafts * vocab, pass.ids + i,
                           drafts);
    else
      context.ops.argmax(context.stream,
                         {logits, pass.ids + i, count, vocab, drafts * vocab, drafts});
    context.ops.confidence(context.stream,
                           {weights.confidence.data(),
                            context.buffers.out.data() + i * config.hidden_size,
                            buffers.markov.data(), pass.confidence + i, count, config.hidden_size,
                            rank, drafts * config.hidden_size, rank, drafts});
    for (std::int64_t s = 0; s < count; ++s) previous[s] = pass.ids[s * drafts + i];
  }
}

/// As many sequences as fit: `pass` is a part of the whole, beginning at sequence `first`.
void run_part(const forward_context& base, const model_weights& weights, draft_buffers& buffers,
              const draft_pass& pass, std::int64_t first) {
  const auto& config = base.config;
  const auto tokens = std::int64_t{pass.sequences} * pass.drafts;
  kernels::draft_tokens_ref(base.stream, {pass.sequences, pass.drafts, pass.slot, pass.position,
                                          pass.anchor, config.draft.noise_token, buffers.id.data(),
                                          buffers.slot.data(), buffers.position.data(),
                                          buffers.row_token.data(), buffers.row_first.data()});
  step_tokens step;
  step.batch = base.step.batch;
  step.batch.tokens = static_cast<std::int32_t>(tokens);
  step.batch.slot = buffers.slot.data();
  step.batch.position = buffers.position.data();
  step.batch.row_first_token = buffers.row_token.data();
  step.batch.row_first_position = buffers.row_first.data();
  step.token_id = buffers.id.data();
  const forward_context context{base.ops, base.stream,  base.config, base.rounding,
                                step,     base.buffers, base.state,  base.observer};
  context.start_streams(weights.embed);
  context.ops.rope_angles(context.stream,
                          {buffers.position.data(), context.buffers.window_frequencies.data(),
                           context.buffers.window_angles.data(), tokens, config.rope_dim});
  run_stages(context, weights, pass);
  auto& shared = context.buffers;
  context.part("head");
  collapse_streams(context, shared.streams.data(), shared.premix.data(), shared.out.data(), tokens);
  context.norm(weights.draft.norm, shared.out.data(), shared.hidden.data(), tokens);
  const auto hidden =
    context.wide_input_of(shared.hidden.data(), shared.hidden_input, tokens, config.hidden_size);
  context.linear(weights.head, hidden, buffers.logits.data(), tokens, false);
  choose_drafts(context, weights.draft, buffers, pass, first);
  context.show(model_point::draft_logits, -1, buffers.logits.data(), tokens * config.vocab_size);
}

}  // namespace

draft_buffers::draft_buffers(const model_config& config, const forward_limits& limits)
  : tokens(limits.tokens),
    id(tokens),
    slot(tokens),
    position(tokens),
    row_token(tokens),
    row_first(tokens),
    logits(std::int64_t{tokens} * config.vocab_size),
    markov(std::int64_t{tokens} * config.draft.markov_rank),
    markov_input(tokens, config.draft.markov_rank) {}

void store_draft_context(const forward_context& context, const model_weights& weights) {
  context.part("draft context");
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto tokens = context.tokens();
  const bool bf16 = context.rounding.bf16;
  const auto taps = static_cast<std::int64_t>(config.draft.target_layers.size());
  context.show(model_point::main_hidden, -1, buffers.taps.data(),
               tokens * taps * config.hidden_size);
  const auto input =
    context.input_of(buffers.taps.data(), buffers.taps_input, tokens, taps * config.hidden_size);
  auto* main = buffers.main.data();
  context.linear(weights.draft.main_proj, input, main, tokens, bf16);
  context.norm(weights.draft.main_norm, main, main, tokens);
  const auto main_input = context.input_of(main, buffers.main_input, tokens, config.hidden_size);
  // One product per stage, together; then each stage's rows into its ring.
  const auto stages = static_cast<std::size_t>(config.draft.stage_count);
  const auto stage_rows = [&](std::size_t stage) {
    return buffers.draft_rows.data() + static_cast<std::int64_t>(stage) * buffers.draft_rows_stride;
  };
  product_list products(context);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const auto layer = static_cast<std::size_t>(config.layer_count) + stage;
    products.add(weights.blocks[layer].attention.wkv, main_input, stage_rows(stage), bf16);
  }
  products.run();
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const auto layer = static_cast<std::size_t>(config.layer_count) + stage;
    auto* rows = stage_rows(stage);
    kernels::memory_rows_args args;
    args.tokens = tokens;
    args.row_norm = context.norm_args(weights.blocks[layer].attention.kv_norm, rows, rows, tokens);
    args.row_rope =
      context.rope_args(rows, buffers.window_angles.data(), tokens, 1, config.head_dim);
    args.row_round = context.round_kv_args(rows, tokens, config.head_dim, kernels::quantiser::q8);
    context.ops.memory_rows(context.stream, args);
    keep_resume_rows(context, static_cast<std::int32_t>(layer), rows);
    context.ops.window_store(context.stream,
                             {context.step.batch, rows, context.state.layers[layer].window.data(),
                              context.state.layout.window_ring, config.head_dim});
  }
}

void run_draft_pass(const forward_context& base, const model_weights& weights,
                    draft_buffers& buffers, const draft_pass& pass) {
  DI_CHECK(pass.drafts >= 1 && pass.drafts <= buffers.tokens, "{} drafts, room for {} tokens",
           pass.drafts, buffers.tokens);
  const auto together = buffers.tokens / pass.drafts;
  for (std::int32_t first = 0; first < pass.sequences; first += together) {
    auto part = pass;
    part.sequences = std::min(together, pass.sequences - first);
    part.slot += first;
    part.position += first;
    part.anchor += first;
    part.ids += std::ptrdiff_t{first} * pass.drafts;
    part.confidence += std::ptrdiff_t{first} * pass.drafts;
    run_part(base, weights, buffers, part, first);
  }
}

}  // namespace deepinfer
