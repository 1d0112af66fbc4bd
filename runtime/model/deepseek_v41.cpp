#include "runtime/model/deepseek_v41.hpp"

#include <utility>

#include "runtime/base/check.hpp"
#include "runtime/model/engram.hpp"
#include "runtime/model/moe.hpp"
#include "runtime/model/resume_point.hpp"
#include "runtime/model/sublayer.hpp"

namespace deepinfer {

deepseek_v41::deepseek_v41(std::shared_ptr<const model_weights> weights,
                           const forward_limits& limits, numeric_mode mode, kernels::isa isa,
                           bool with_draft)
  : weights_(std::move(weights)),
    ops_(kernels::cpu_ops(isa)),
    rounding_(numerics_of(mode, weights_->config)),
    with_draft_(with_draft && weights_->config.has_draft()),
    buffers_(weights_->config, limits, with_draft_),
    late_(limits.tokens) {
  DI_CHECK(weights_->packed_for == packing_of(mode),
           "the weights are packed for another numeric mode");
  if (with_draft_) draft_buffers_ = draft_buffers(weights_->config, limits);
}

void deepseek_v41::start(const forward_context& context) const {
  auto& buffers = context.buffers;
  list_resume_edges(context);
  context.start_streams(weights_->embed);
  make_angles(context);
  for (auto& rotation : buffers.rotations) {
    context.ops.group_positions(context.stream,
                                {context.step.batch, rotation.ratio, rotation.position.data()});
    context.ops.rope_angles(context.stream,
                            {rotation.position.data(), buffers.compressed_frequencies.data(),
                             rotation.angles.data(), context.tokens(), config().rope_dim});
  }
}

void deepseek_v41::make_angles(const forward_context& context) const {
  auto& buffers = context.buffers;
  const auto make = [&](const std::vector<float>& frequency, lazy_array<float>& into) {
    context.ops.rope_angles(context.stream, {context.step.batch.position, frequency.data(),
                                             into.data(), context.tokens(), config().rope_dim});
  };
  make(buffers.window_frequencies, buffers.window_angles);
  make(buffers.compressed_frequencies, buffers.compressed_angles);
}

unfinished deepseek_v41::run_layer(const forward_context& context, std::int32_t layer,
                                   unfinished before, memory_stage memory) const {
  auto& buffers = context.buffers;
  const auto& facts = config().layers[static_cast<std::size_t>(layer)];
  const auto& block = weights_->blocks[static_cast<std::size_t>(layer)];
  const std::int64_t tokens = context.tokens(), dim = config().hidden_size;
  const std::int64_t streams = config().stream_count;
  if (facts.engram >= 0) {
    finish_sublayer(context, before);
    before = {};
    context.part("engram");
    run_engram(context, layer, weights_->engrams[static_cast<std::size_t>(facts.engram)],
               weights_->token_classes);
  }
  const bool is_tapped = with_draft_ && facts.tap >= 0;
  auto* tap = is_tapped ? buffers.taps.data() + facts.tap * dim : nullptr;
  const auto taps = static_cast<std::int64_t>(config().draft.target_layers.size());
  const auto input = begin_attention(context, before, block, tap, taps * dim);
  run_attention(context, layer, block.attention, input, memory);
  context.show(model_point::attention_out, layer, buffers.out.data(), tokens * dim);

  const auto chosen = config().experts_per_token;
  const auto expert_input = begin_experts(context, block, chosen);
  context.show(model_point::router_ids, layer, buffers.expert_id.data(), tokens * chosen);
  context.show(model_point::router_weights, layer, buffers.expert_weight.data(), tokens * chosen);
  const auto after = run_experts(context, block.moe, expert_input, chosen);
  if (!context.observer) return after;
  finish_sublayer(context, after);
  context.show(model_point::ffn_out, layer, buffers.out.data(), tokens * dim);
  context.show(model_point::stream, layer, buffers.streams.data(), tokens * streams * dim);
  context.show(model_point::premix, layer, buffers.premix.data(), tokens * streams);
  return {};
}

unfinished deepseek_v41::run_layers(const forward_context& context, std::int32_t first,
                                    std::int32_t end, unfinished before,
                                    memory_stage memory_of_first) const {
  for (auto layer = first; layer < end; ++layer)
    before =
      run_layer(context, layer, before, layer == first ? memory_of_first : memory_stage::due);
  return before;
}

step_tokens deepseek_v41::cut(const forward_context& context, unfinished before) {
  const auto layer = context.state.layout.late_layer;
  const auto& block = weights_->blocks[static_cast<std::size_t>(layer)];
  begin_attention(context, before, block);
  make_memory(context, layer, block.attention);
  context.part("attention rows");
  const auto step = late_.keep(context);
  const std::int64_t kept = step.batch.tokens, streams = config().stream_count;
  ops_.gather(context.stream,
              {buffers_.streams.data(), late_.token.data(), buffers_.picked_streams.data(), kept,
               streams * config().hidden_size});
  ops_.gather(context.stream, {buffers_.premix.data(), late_.token.data(),
                               buffers_.picked_premix.data(), kept, streams});
  std::swap(buffers_.streams, buffers_.picked_streams);
  std::swap(buffers_.premix, buffers_.picked_premix);
  return step;
}

void deepseek_v41::forward(const stream_ref& stream, const step_tokens& step, kv_state& state,
                           model_observer* observer) {
  const forward_context context{ops_, stream, config(), rounding_, step, buffers_, state, observer};
  is_cut_ = step.kept_tokens >= 0;
  if (step.batch.tokens == 0) return;
  context.part("embedding");
  start(context);
  const auto layers = config().layer_count;
  if (!is_cut_) {
    finish_sublayer(context, run_layers(context, 0, layers, {}, memory_stage::due));
    if (with_draft_) store_draft_context(context, *weights_);
    return;
  }
  const auto first = state.layout.late_layer;
  DI_CHECK(first < layers, "{} of {} tokens are kept, but the state has no replay",
           step.kept_tokens, step.batch.tokens);
  const auto kept = cut(context, run_layers(context, 0, first, {}, memory_stage::due));
  if (kept.batch.tokens == 0) return;
  const forward_context late{ops_, stream, config(), rounding_, kept, buffers_, state, observer};
  make_angles(late);
  finish_sublayer(late, run_layers(late, first, layers, {}, memory_stage::done));
  if (with_draft_) store_draft_context(late, *weights_);
}

void deepseek_v41::logits(const stream_ref& stream, const std::int32_t* token, std::int64_t count,
                          kv_state& state, float* out) {
  if (count == 0) return;
  const std::int64_t streams = config().stream_count, dim = config().hidden_size;
  if (stream.meter) stream.meter->enter("head");
  if (is_cut_) token = late_.find(token, count);
  ops_.gather(
    stream, {buffers_.streams.data(), token, buffers_.picked_streams.data(), count, streams * dim});
  ops_.gather(stream,
              {buffers_.premix.data(), token, buffers_.picked_premix.data(), count, streams});
  const step_tokens none;
  const forward_context context{ops_, stream, config(), rounding_, none, buffers_, state, nullptr};
  auto* hidden = buffers_.hidden.data();
  collapse_streams(context, buffers_.picked_streams.data(), buffers_.picked_premix.data(), hidden,
                   count);
  context.norm(weights_->norm, hidden, hidden, count);
  context.linear(weights_->head, context.wide_input_of(hidden, buffers_.hidden_input, count, dim),
                 out, count, false);
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
