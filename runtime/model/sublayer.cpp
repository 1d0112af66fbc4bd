#include "runtime/model/sublayer.hpp"

namespace deepinfer {

namespace {

/// The args of one border; `whole` points into it.
struct border {
  explicit border(const forward_context& given) : context(given) {
    whole.tokens = context.tokens();
  }
  border(const border&) = delete;

  void finish(const unfinished& before);
  void begin(const hyper_weights& weights, float* pre, const float* collapse_weight,
             const std::vector<float>& norm_weight);
  void measure(float* into, std::int64_t stride);
  void choose(const moe_weights& weights, std::int32_t chosen);
  product_input run();

  const forward_context& context;
  kernels::combine_args combine;
  kernels::hyper_post_args post;
  kernels::stream_mean_args tap;
  kernels::hyper_mix_args mix;
  kernels::collapse_args collapse;
  kernels::rms_norm_args norm;
  kernels::quantise_args round;
  kernels::to_int8_args to_int8;
  kernels::linear_args gate;
  kernels::route_args route;
  kernels::sublayer_args whole;
};

void border::finish(const unfinished& before) {
  if (before.what == unfinished::kind::nothing) return;
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto tokens = context.tokens();
  if (before.what == unfinished::kind::experts) {
    combine = {buffers.expert_id.data(),
               buffers.expert_out.data(),
               buffers.shared_out.data(),
               buffers.out.data(),
               tokens,
               before.chosen,
               config.hidden_size,
               context.rounding.bf16};
    whole.combine = &combine;
  }
  post = {
    buffers.streams.data(), buffers.out.data(), buffers.post.data(),  buffers.comb.data(), tokens,
    config.stream_count,    config.hidden_size, context.rounding.bf16};
  whole.post = &post;
}

void border::measure(float* into, std::int64_t stride) {
  tap = {context.buffers.streams.data(), into,   context.tokens(),     context.config.stream_count,
         context.config.hidden_size,     stride, context.rounding.bf16};
  whole.tap = &tap;
}

void border::begin(const hyper_weights& weights, float* pre, const float* collapse_weight,
                   const std::vector<float>& norm_weight) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto tokens = context.tokens();
  mix.x = buffers.streams.data();
  mix.fn = &weights.fn;
  mix.z = buffers.mix.data();
  mix.dim = config.hidden_size;
  mix.rms_eps = static_cast<float>(config.rms_norm_eps);
  mix.partial = buffers.mix_partial.data();
  mix.split.base = weights.base.data();
  mix.split.scale = weights.scale.data();
  mix.split.pre = pre;
  mix.split.post = buffers.post.data();
  mix.split.comb = buffers.comb.data();
  mix.split.tokens = tokens;
  mix.split.streams = config.stream_count;
  mix.split.iterations = config.sinkhorn_rounds;
  mix.split.hc_eps = static_cast<float>(config.hyper_eps);
  whole.mix = &mix;
  collapse = {buffers.streams.data(), collapse_weight,    buffers.hidden.data(), tokens,
              config.stream_count,    config.hidden_size, context.rounding.bf16};
  whole.collapse = &collapse;
  norm = context.norm_args(norm_weight, buffers.hidden.data(), buffers.hidden.data(), tokens);
  whole.norm = &norm;
  round = context.round_input_args(buffers.hidden.data(), buffers.hidden_input, tokens,
                                   config.hidden_size);
  if (round.y) whole.quantise = &round;
  to_int8 = context.int8_input_args(buffers.hidden.data(), buffers.hidden_input, tokens,
                                    config.hidden_size);
  if (to_int8.codes) whole.to_int8 = &to_int8;
}

void border::choose(const moe_weights& weights, std::int32_t chosen) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  gate.weight = &weights.gate;
  gate.x = buffers.hidden.data();
  gate.y = buffers.router_logits.data();
  gate.rows = context.tokens();
  whole.gate = &gate;
  route.batch = context.step.batch;
  route.logits = buffers.router_logits.data();
  route.bias = weights.bias.data();
  route.experts = static_cast<std::int32_t>(weights.experts.size());
  route.k = chosen;
  route.temperature = static_cast<float>(config.gate_temperature);
  route.scale = static_cast<float>(config.routed_scale);
  route.normalise = config.normalizes_weights;
  route.id = buffers.expert_id.data();
  route.weight = buffers.expert_weight.data();
  whole.route = &route;
}

product_input border::run() {
  context.ops.sublayer(context.stream, whole);
  return context.made_input(context.buffers.hidden.data(), context.buffers.hidden_input);
}

}  // namespace

void collapse_streams(const forward_context& context, const float* streams, const float* weight,
                      float* hidden, std::int64_t count) {
  context.ops.collapse(context.stream, {streams, weight, hidden, count, context.config.stream_count,
                                        context.config.hidden_size, context.rounding.bf16});
}

void finish_sublayer(const forward_context& context, const unfinished& before) {
  if (before.what == unfinished::kind::nothing) return;
  context.part("streams");
  border it(context);
  it.finish(before);
  context.ops.sublayer(context.stream, it.whole);
}

product_input begin_attention(const forward_context& context, const unfinished& before,
                              const block_weights& weights, float* tap, std::int64_t tap_stride) {
  context.part("streams");
  border it(context);
  it.finish(before);
  if (tap) it.measure(tap, tap_stride);
  it.begin(weights.attn_mix, context.buffers.attn_pre.data(), context.buffers.premix.data(),
           weights.attn_norm);
  return it.run();
}

product_input begin_experts(const forward_context& context, const block_weights& weights,
                            std::int32_t chosen) {
  context.part("streams");
  border it(context);
  it.finish({unfinished::kind::attention, 0});
  it.begin(weights.ffn_mix, context.buffers.premix.data(), context.buffers.attn_pre.data(),
           weights.ffn_norm);
  it.choose(weights.moe, chosen);
  return it.run();
}

}  // namespace deepinfer
