#include "runtime/model/moe.hpp"

namespace deepinfer {

unfinished run_experts(const forward_context& context, const moe_weights& weights,
                       const product_input& input, std::int32_t chosen) {
  context.part("experts");
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto tokens = context.tokens();
  const auto experts = static_cast<std::int32_t>(weights.experts.size());
  context.ops.group_by_expert(context.stream,
                              {buffers.expert_id.data(), tokens, chosen, experts,
                               buffers.expert_offset.data(), buffers.expert_order.data()});
  kernels::expert_ffn_args ffn;
  ffn.experts = weights.experts.data();
  ffn.expert_count = experts;
  ffn.x = input.x;
  ffn.x8 = input.x8;
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
  ffn.shared = &weights.shared;
  ffn.tokens = tokens;
  ffn.shared_hidden = buffers.shared_hidden.data();
  ffn.shared_y = buffers.shared_out.data();
  ffn.hidden8 = buffers.hidden8.data();
  ffn.hidden8_scales = buffers.hidden8_scales.data();
  context.ops.expert_ffn(context.stream, ffn);
  return {unfinished::kind::experts, chosen};
}

}  // namespace deepinfer
