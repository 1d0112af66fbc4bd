#include "runtime/model/forward_context.hpp"

#include <algorithm>

namespace deepinfer {

namespace {

std::vector<float> frequencies(const rope_config& rope, std::int32_t rotary) {
  kernels::rope_config wanted;
  wanted.theta = rope.theta;
  wanted.rotary = rotary;
  if (rope.is_yarn) {
    wanted.original_positions = rope.original_max_positions;
    wanted.factor = rope.factor;
    wanted.beta_fast = rope.beta_fast;
    wanted.beta_slow = rope.beta_slow;
  }
  std::vector<float> made(static_cast<std::size_t>(rotary / 2));
  kernels::rope_frequencies(wanted, made.data());
  return made;
}

}  // namespace

numerics numerics_of(numeric_mode mode, const model_config& config) {
  numerics made;
  if (mode == numeric_mode::released) made = {true, config.quantization.has_value(), true, false};
  made.int8_inputs = mode == numeric_mode::fast;
  return made;
}

input_buffer::input_buffer(std::int64_t rows, std::int64_t dim)
  : rounded(rows * dim),
    codes(rows * kernels::int8_padded(dim)),
    scales(rows * kernels::int8_padded(dim) / kernels::int8_group) {}

forward_buffers::forward_buffers(const model_config& config, const forward_limits& limits,
                                 bool with_draft) {
  const std::int64_t tokens = limits.tokens, streams_count = config.stream_count;
  const auto floats = [tokens](std::int64_t each) { return lazy_array<float>(tokens * each); };
  const auto ints = [tokens](std::int64_t each) { return lazy_array<std::int32_t>(tokens * each); };
  const std::int64_t dim = config.hidden_size, row = config.head_dim;

  streams = floats(streams_count * dim);
  premix = floats(streams_count);
  attn_pre = floats(streams_count);
  post = floats(streams_count);
  comb = floats(streams_count * streams_count);
  mix = floats(config.mix_rows());
  mix_partial = floats(kernels::mix_partial_floats(config.stream_count, dim));
  hidden = floats(dim);
  hidden_input = {tokens, dim};
  out = floats(dim);
  picked_streams = floats(streams_count * dim);
  picked_premix = floats(streams_count);
  resume_edges = ints(1);
  resume_edge_count = lazy_array<std::int32_t>(1);

  window_angles = floats(config.rope_dim);
  compressed_angles = floats(config.rope_dim);
  window_frequencies = frequencies(config.window_rope, config.rope_dim);
  compressed_frequencies = frequencies(config.compressed_rope, config.rope_dim);
  for (const auto& layer : config.layers) {
    if (!layer.owns_rows) continue;
    if (std::any_of(rotations.begin(), rotations.end(),
                    [&layer](const row_rotation& it) { return it.ratio == layer.ratio; }))
      continue;
    rotations.push_back({layer.ratio, ints(1), floats(config.rope_dim)});
  }

  q_latent = floats(config.q_rank);
  q_latent_input = {tokens, config.q_rank};
  q = floats(config.head_count * row);
  attended = floats(config.head_count * row);
  rows = floats(row);
  pool_value = floats(row);
  pool_score = floats(row);
  latent = floats(row);
  memory = floats(row);
  index_key = floats(config.index_head_dim);
  index_q = floats(std::int64_t{config.index_head_count} * config.index_head_dim);
  index_weight = floats(config.index_head_count);
  if (config.index_topk > 0) scores = lazy_array<float>(std::max(limits.scores, limits.positions));
  selected = ints(config.index_topk);
  candidates = ints(config.candidate_source >= 0 ? config.candidate_blocks : 0);
  const std::int64_t groups = config.o_groups;
  attended_input = {tokens * groups, config.head_count / groups * row};
  grouped = floats(groups * config.o_rank);
  grouped_input = {tokens, groups * config.o_rank};

  const std::int64_t experts = std::max(config.expert_count, config.draft.expert_count);
  const std::int64_t chosen = std::max(config.experts_per_token, config.draft.experts_per_token);
  router_logits = floats(experts);
  expert_id = ints(chosen);
  expert_weight = floats(chosen);
  expert_offset = lazy_array<std::int32_t>(experts + 1);
  expert_order = ints(chosen);
  expert_hidden = floats(chosen * 2 * config.expert_dim);
  expert_out = floats(chosen * dim);
  shared_hidden = floats(2 * std::int64_t{config.expert_dim});
  const auto padded = kernels::int8_padded(config.expert_dim);
  hidden8 = lazy_array<std::int8_t>(tokens * (chosen + 1) * padded);
  hidden8_scales = floats((chosen + 1) * padded / kernels::int8_group);
  shared_out = floats(dim);

  if (config.has_engram()) {
    engram_ids = lazy_array<std::int64_t>(tokens * config.engram.columns());
    engram_rows = floats(config.engram.input_dim());
    engram_input = {tokens, config.engram.input_dim()};
    engram_kv = floats((streams_count + 1) * dim);
  }
  if (with_draft) {
    const auto taps_dim = static_cast<std::int64_t>(config.draft.target_layers.size()) * dim;
    taps = floats(taps_dim);
    draft_rows_stride = tokens * row;
    draft_rows = floats(config.draft.stage_count * row);
    taps_input = {tokens, taps_dim};
    main = floats(dim);
    main_input = {tokens, dim};
  }
}

product_input forward_context::input_of(const float* x, input_buffer& into, std::int64_t count,
                                        std::int64_t dim) const {
  if (const auto args = round_input_args(x, into, count, dim); args.y) ops.quantise(stream, args);
  if (const auto args = int8_input_args(x, into, count, dim); args.codes) ops.to_int8(stream, args);
  return made_input(x, into);
}

product_input forward_context::wide_input_of(const float* x, input_buffer& into, std::int64_t count,
                                             std::int64_t dim) const {
  if (rounding.quantises_inputs) return {x, {}};
  return input_of(x, into, count, dim);
}

kernels::quantise_args forward_context::round_input_args(const float* x, input_buffer& into,
                                                         std::int64_t count,
                                                         std::int64_t dim) const {
  if (!rounding.quantises_inputs) return {};
  return {x, into.rounded.data(), count, dim, kernels::quantiser::q8};
}

kernels::to_int8_args forward_context::int8_input_args(const float* x, input_buffer& into,
                                                       std::int64_t count, std::int64_t dim) const {
  if (!rounding.int8_inputs) return {};
  return {x, into.codes.data(), into.scales.data(), count, dim};
}

product_input forward_context::made_input(const float* x, const input_buffer& from) const {
  if (rounding.quantises_inputs) return {from.rounded.data(), {}};
  if (rounding.int8_inputs) return {x, {from.codes.data(), from.scales.data()}};
  return {x, {}};
}

kernels::quantise_args forward_context::round_kv_args(float* x, std::int64_t count,
                                                      std::int64_t dim,
                                                      kernels::quantiser format) const {
  if (!rounding.rounds_kv) return {};
  return {x, x, count, dim, format};
}

void forward_context::start_streams(const kernels::row_table& embed) const {
  kernels::lookup_args lookup;
  lookup.table = &embed;
  lookup.index32 = step.token_id;
  lookup.y = buffers.streams.data();
  lookup.count = tokens();
  lookup.copies = config.stream_count;
  lookup.bf16 = rounding.bf16;
  lookup.first_only = buffers.premix.data();
  ops.lookup(stream, lookup);
}

kernels::rope_args forward_context::rope_args(float* x, const float* angles, std::int64_t count,
                                              std::int64_t heads, std::int64_t dim) const {
  kernels::rope_args args;
  args.x = x;
  args.angles = angles;
  args.tokens = count;
  args.heads = heads;
  args.dim = dim;
  args.rotary = config.rope_dim;
  args.bf16 = rounding.bf16;
  return args;
}

kernels::linear_args forward_context::linear_args(const kernels::packed_matrix& weight,
                                                  const product_input& input, float* y,
                                                  std::int64_t count, bool bf16) const {
  kernels::linear_args args;
  args.weight = &weight;
  args.x = input.x;
  args.x8 = input.x8;
  args.y = y;
  args.rows = count;
  args.bf16 = bf16;
  return args;
}

kernels::rms_norm_args forward_context::norm_args(const std::vector<float>& weight, const float* x,
                                                  float* y, std::int64_t count) const {
  kernels::rms_norm_args args;
  args.x = x;
  args.weight = weight.data();
  args.y = y;
  args.rows = count;
  args.dim = static_cast<std::int64_t>(weight.size());
  args.eps = static_cast<float>(config.rms_norm_eps);
  args.bf16 = rounding.bf16;
  return args;
}

void forward_context::linear(const kernels::packed_matrix& weight, const product_input& input,
                             float* y, std::int64_t count, bool bf16) const {
  ops.linear(stream, linear_args(weight, input, y, count, bf16));
}

void forward_context::norm(const std::vector<float>& weight, const float* x, float* y,
                           std::int64_t count) const {
  ops.rms_norm(stream, norm_args(weight, x, y, count));
}

}  // namespace deepinfer
