#include "runtime/model/deepseek_v41.hpp"

#include "runtime/base/check.hpp"
#include "runtime/model/attention.hpp"
#include "runtime/model/engram.hpp"
#include "runtime/model/hyper_connection.hpp"
#include "runtime/model/moe.hpp"

namespace deepinfer {

deepseek_v41::deepseek_v41(std::shared_ptr<const model_weights> weights,
                           const forward_limits& limits, numeric_mode mode, bool with_draft)
  : weights_(std::move(weights)),
    ops_(kernels::cpu_ops()),
    rounding_(numerics_of(mode, weights_->config)),
    with_draft_(with_draft && weights_->config.has_draft()),
    buffers_(weights_->config, limits, with_draft_) {
  if (with_draft_) draft_buffers_ = draft_buffers(weights_->config, limits);
}

void deepseek_v41::start(const forward_context& context) const {
  auto& buffers = context.buffers;
  const auto& batch = context.step.batch;
  const auto tokens = context.tokens();
  const auto rotary = config().rope_dim;
  context.start_streams(weights_->embed);
  const auto angles = [&](const std::int32_t* position, const std::vector<float>& frequency,
                          lazy_array<float>& into) {
    context.ops.rope_angles(context.stream,
                            {position, frequency.data(), into.data(), tokens, rotary});
  };
  angles(batch.position, buffers.window_frequencies, buffers.window_angles);
  angles(batch.position, buffers.compressed_frequencies, buffers.compressed_angles);
  for (auto& rotation : buffers.rotations) {
    context.ops.group_positions(context.stream, {batch, rotation.ratio, rotation.position.data()});
    angles(rotation.position.data(), buffers.compressed_frequencies, rotation.angles);
  }
}

void deepseek_v41::run_layer(const forward_context& context, std::int32_t layer) const {
  auto& buffers = context.buffers;
  const auto& facts = config().layers[static_cast<std::size_t>(layer)];
  const auto& block = weights_->blocks[static_cast<std::size_t>(layer)];
  const std::int64_t tokens = context.tokens(), dim = config().hidden_size;
  const std::int64_t streams = config().stream_count;
  if (facts.engram >= 0)
    run_engram(context, layer, weights_->engrams[static_cast<std::size_t>(facts.engram)],
               weights_->token_classes);
  if (with_draft_ && facts.tap >= 0) {
    const auto taps = static_cast<std::int64_t>(config().draft.target_layers.size());
    context.ops.stream_mean(context.stream,
                            {buffers.streams.data(), buffers.taps.data() + facts.tap * dim, tokens,
                             config().stream_count, dim, taps * dim, rounding_.bf16});
  }
  enter_attention(context, block);
  run_attention(context, layer, block.attention);
  context.show(model_point::attention_out, layer, buffers.out.data(), tokens * dim);
  leave_sublayer(context);
  enter_experts(context, block);
  run_moe(context, layer, block.moe, config().experts_per_token);
  context.show(model_point::ffn_out, layer, buffers.out.data(), tokens * dim);
  leave_sublayer(context);
  context.show(model_point::stream, layer, buffers.streams.data(), tokens * streams * dim);
  context.show(model_point::premix, layer, buffers.premix.data(), tokens * streams);
}

void deepseek_v41::forward(const stream_ref& stream, const step_tokens& step, kv_state& state,
                           model_observer* observer) {
  const forward_context context{ops_, stream, config(), rounding_, step, buffers_, state, observer};
  if (step.batch.tokens == 0) return;
  start(context);
  for (std::int32_t layer = 0; layer < config().layer_count; ++layer) run_layer(context, layer);
  if (with_draft_) store_draft_context(context, *weights_);
}

void deepseek_v41::logits(const stream_ref& stream, const std::int32_t* token, std::int64_t count,
                          float* out) {
  if (count == 0) return;
  const std::int64_t streams = config().stream_count, dim = config().hidden_size;
  ops_.gather(
    stream, {buffers_.streams.data(), token, buffers_.picked_streams.data(), count, streams * dim});
  ops_.gather(stream,
              {buffers_.premix.data(), token, buffers_.picked_premix.data(), count, streams});
  auto* hidden = buffers_.hidden.data();
  ops_.collapse(stream, {buffers_.picked_streams.data(), buffers_.picked_premix.data(), hidden,
                         count, config().stream_count, dim, rounding_.bf16});
  kernels::rms_norm_args norm;
  norm.x = hidden;
  norm.weight = weights_->norm.data();
  norm.y = hidden;
  norm.rows = count;
  norm.dim = dim;
  norm.eps = static_cast<float>(config().rms_norm_eps);
  norm.bf16 = rounding_.bf16;
  ops_.rms_norm(stream, norm);
  kernels::linear_args head;
  head.weight = &weights_->head;
  head.x = hidden;
  head.y = out;
  head.rows = count;
  ops_.linear(stream, head);
}

void deepseek_v41::draft(const stream_ref& stream, const draft_pass& pass, kv_state& state,
                         model_observer* observer) {
  DI_CHECK(with_draft_, "a draft pass of {} sequences, but the model was made without its drafter",
           pass.sequences);
  const step_tokens none;
  const forward_context base{ops_, stream, config(), rounding_, none, buffers_, state, observer};
  run_draft_pass(base, *weights_, draft_buffers_, pass);
}

}  // namespace deepinfer
