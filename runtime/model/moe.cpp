#include "runtime/model/moe.hpp"

namespace deepinfer {

namespace {

/// The shared expert of `input` into buffers.shared_out.
void run_shared(const forward_context& context, const kernels::expert_weights& shared,
                const float* input) {
  auto& buffers = context.buffers;
  const auto tokens = context.tokens();
  const bool bf16 = context.rounding.bf16;
  context.linear(shared.w1, input, buffers.shared_gate.data(), tokens, bf16);
  context.linear(shared.w3, input, buffers.shared_up.data(), tokens, bf16);
  kernels::swiglu_args args;
  args.gate = buffers.shared_gate.data();
  args.up = buffers.shared_up.data();
  args.y = buffers.shared_gate.data();
  args.rows = tokens;
  args.inter = context.config.expert_dim;
  args.limit = static_cast<float>(context.config.swiglu_limit);
  args.bf16 = bf16;
  context.ops.swiglu(context.stream, args);
  const auto* hidden = context.quantised(buffers.shared_gate.data(), buffers.shared_gate, tokens,
                                         context.config.expert_dim);
  context.linear(shared.w2, hidden, buffers.shared_out.data(), tokens, bf16);
}

}  // namespace

void run_moe(const forward_context& context, std::int32_t layer, const moe_weights& weights,
             std::int32_t chosen) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto tokens = context.tokens();
  const auto experts = static_cast<std::int32_t>(weights.experts.size());

  context.linear(weights.gate, buffers.hidden.data(), buffers.router_logits.data(), tokens, false);
  kernels::route_args route;
  route.batch = context.step.batch;
  route.logits = buffers.router_logits.data();
  route.bias = weights.bias.data();
  route.experts = experts;
  route.k = chosen;
  route.temperature = static_cast<float>(config.gate_temperature);
  route.scale = static_cast<float>(config.routed_scale);
  route.normalise = config.normalizes_weights;
  route.id = buffers.expert_id.data();
  route.weight = buffers.expert_weight.data();
  context.ops.route(context.stream, route);
  context.show(model_point::router_ids, layer, buffers.expert_id.data(), tokens * chosen);
  context.show(model_point::router_weights, layer, buffers.expert_weight.data(), tokens * chosen);
  context.ops.group_by_expert(context.stream,
                              {buffers.expert_id.data(), tokens, chosen, experts,
                               buffers.expert_offset.data(), buffers.expert_order.data()});

  const auto* input =
    context.quantised(buffers.hidden.data(), buffers.hidden_q8, tokens, config.hidden_size);
  kernels::expert_ffn_args ffn;
  ffn.experts = weights.experts.data();
  ffn.expert_count = experts;
  ffn.x = input;
  ffn.dim = config.hidden_size;
  ffn.inter = config.expert_dim;
  ffn.k = chosen;
  ffn.offset = buffers.expert_offset.data();
  ffn.order = buffers.expert_order.data();
  ffn.weight = buffers.expert_weight.data();
  ffn.hidden = buffers.expert_hidden.data();
  ffn.pair_y = buffers.expert_out.data();
  ffn.limit = static_cast<float>(config.swiglu_limit);
  ffn.bf16 = context.rounding.bf16;
  ffn.quantise_hidden = context.rounding.quantises_inputs;
  context.ops.expert_ffn(context.stream, ffn);
  run_shared(context, weights.shared, input);
  context.ops.combine(context.stream, {buffers.expert_id.data(), buffers.expert_out.data(),
                                       buffers.shared_out.data(), buffers.out.data(), tokens,
                                       chosen, config.hidden_size, context.rounding.bf16});
}

}  // namespace deepinfer
