/// DeepSeek-V4.1-Flash, text: the order of its layers over the kernels of a device.
///
/// One object per rank: weights shared, activations its own, sequence state handed in. A call runs
/// on the caller's stream, one at a time; nothing is allocated after construction. Rows of several
/// sequences, chunks of any length and decode rows may share a step; a row's bits depend on its own
/// sequence alone [model-v41.md 20]. Draft context rows are written by every forward when made
/// `with_draft`. A state with a prefix cache gets its resume points (resume_point.hpp); a step that
/// says how many tokens are kept runs the late layers over these only (replay.hpp).
/// Source: model-v41.md 5, 6, 11, 15, 16, 17.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/base/stream.hpp"
#include "runtime/model/attention.hpp"
#include "runtime/model/dspark.hpp"
#include "runtime/model/forward_context.hpp"
#include "runtime/model/kv_layout.hpp"
#include "runtime/model/model_observer.hpp"
#include "runtime/model/replay.hpp"
#include "runtime/model/sublayer.hpp"
#include "runtime/model/weights.hpp"

namespace deepinfer {

class deepseek_v41 {
public:
  deepseek_v41(std::shared_ptr<const model_weights> weights, const forward_limits& limits,
               numeric_mode mode, kernels::isa isa, bool with_draft);

  /// Runs all layers over the step's tokens and leaves the streams for `logits`. Token ids must lie
  /// in the paged history already (kernels/step/store_tokens).
  void forward(const stream_ref& stream, const step_tokens& step, kv_state& state,
               model_observer* observer = nullptr);

  /// Logits [count, vocab] of tokens of the last forward; a token index < 0, or one that replay has
  /// left out, gives those of zeros.
  void logits(const stream_ref& stream, const std::int32_t* token, std::int64_t count,
              kv_state& state, float* out);

  /// One draft pass. Overwrites the activations: take logits first.
  void draft(const stream_ref& stream, const draft_pass& pass, kv_state& state,
             model_observer* observer = nullptr);

  const model_config& config() const { return weights_->config; }
  const model_weights& weights() const { return *weights_; }
  const kernels::ops& ops() const { return ops_; }
  bool has_draft() const { return with_draft_; }

private:
  void start(const forward_context& context) const;
  void make_angles(const forward_context& context) const;
  /// Returns what the layer leaves to be added to the streams.
  unfinished run_layer(const forward_context& context, std::int32_t layer, unfinished before,
                       memory_stage memory) const;
  /// Layers [first, end) of the model.
  unfinished run_layers(const forward_context& context, std::int32_t first, std::int32_t end,
                        unfinished before, memory_stage memory_of_first) const;
  /// The late layer's memory for every token of the step; its streams are then those of the tokens
  /// kept. Returns the step of these.
  step_tokens cut(const forward_context& context, unfinished before);

  std::shared_ptr<const model_weights> weights_;
  const kernels::ops& ops_;
  numerics rounding_;
  bool with_draft_;
  forward_buffers buffers_;
  late_tokens late_;
  bool is_cut_ = false;  ///< the last forward kept some tokens only
  draft_buffers draft_buffers_;
};

}  // namespace deepinfer
