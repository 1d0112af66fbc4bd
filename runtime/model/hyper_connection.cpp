#include "runtime/model/hyper_connection.hpp"

namespace deepinfer {

namespace {

void mix(const forward_context& context, const hyper_weights& weights, float* pre) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  kernels::hyper_mix_args args;
  args.x = buffers.streams.data();
  args.fn = &weights.fn;
  args.z = buffers.mix.data();
  args.dim = config.hidden_size;
  args.rms_eps = static_cast<float>(config.rms_norm_eps);
  args.split.base = weights.base.data();
  args.split.scale = weights.scale.data();
  args.split.pre = pre;
  args.split.post = buffers.post.data();
  args.split.comb = buffers.comb.data();
  args.split.tokens = context.tokens();
  args.split.streams = config.stream_count;
  args.split.iterations = config.sinkhorn_rounds;
  args.split.hc_eps = static_cast<float>(config.hyper_eps);
  context.ops.hyper_mix(context.stream, args);
}

}  // namespace

void collapse_streams(const forward_context& context, const float* streams, const float* weight,
                      float* hidden, std::int64_t count) {
  context.ops.collapse(context.stream, {streams, weight, hidden, count, context.config.stream_count,
                                        context.config.hidden_size, context.rounding.bf16});
}

void enter_attention(const forward_context& context, const block_weights& weights) {
  auto& buffers = context.buffers;
  const auto tokens = context.tokens();
  mix(context, weights.attn_mix, buffers.attn_pre.data());
  collapse_streams(context, buffers.streams.data(), buffers.premix.data(), buffers.hidden.data(),
                   tokens);
  context.norm(weights.attn_norm, buffers.hidden.data(), buffers.hidden.data(), tokens);
}

void enter_experts(const forward_context& context, const block_weights& weights) {
  auto& buffers = context.buffers;
  const auto tokens = context.tokens();
  mix(context, weights.ffn_mix, buffers.premix.data());
  collapse_streams(context, buffers.streams.data(), buffers.attn_pre.data(), buffers.hidden.data(),
                   tokens);
  context.norm(weights.ffn_norm, buffers.hidden.data(), buffers.hidden.data(), tokens);
}

void leave_sublayer(const forward_context& context) {
  auto& buffers = context.buffers;
  context.ops.hyper_post(context.stream,
                         {buffers.streams.data(), buffers.out.data(), buffers.post.data(),
                          buffers.comb.data(), context.tokens(), context.config.stream_count,
                          context.config.hidden_size, context.rounding.bf16});
}

}  // namespace deepinfer
