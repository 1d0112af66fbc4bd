/// Who makes a step's drafts, on the device, right after the sampling of its rows.
///
/// DSpark: one pass of the checkpoint's drafter, whose choices are drawn as the request's tokens
/// are: with the target's noise of the drafted position for the coupled rule, so that a drafter
/// that is right about the distribution is right about the token; with noise of their own for the
/// rejection rule, which then needs q. Bias, temperature and cuts of the request hold; penalties do
/// not, since they count ids that are not there yet. N-grams: kernels/step/ngram_drafts.
/// Errors of make_drafter: invalid_argument where the settings or the checkpoint have no such
/// drafter. Nothing is allocated after the first draft on a stream's team.
/// Source: architecture.md 4; model-v41.md 11.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/sampling/slot_sampling.hpp"
#include "runtime/base/error.hpp"
#include "runtime/model/deepseek_v41.hpp"
#include "runtime/model/step_runner.hpp"

namespace deepinfer {

/// The sequences that want drafts; all arrays are the device's.
struct draft_rows {
  std::int32_t count = 0;
  std::int32_t drafts = 0;                           ///< of each
  const std::int32_t* slot = nullptr;                ///< [count], -1: wants none
  const std::int32_t* position = nullptr;            ///< [count] last one in the history
  const std::int32_t* anchor = nullptr;              ///< [count] id at position + 1
  const kernels::slot_sampling* sampling = nullptr;  ///< [slots]
  std::int32_t* ids = nullptr;                       ///< [count, drafts] out
  float* confidence = nullptr;                       ///< [count, drafts] out, in [0, 1]
};

class drafter {
public:
  virtual ~drafter() = default;
  /// Whether `confidence` is written.
  virtual bool has_confidences() const = 0;
  /// q of every slot's drafts, [slots, drafts, vocab]; null: each draft had all of it.
  virtual const float* probs() const { return nullptr; }
  virtual void draft(const stream_ref& stream, const draft_rows& rows) = 0;
};

/// Null where the settings ask for none. Keeps references to `model` and `state`.
std::unique_ptr<drafter> make_drafter(const runner_config& config, deepseek_v41& model,
                                      kv_state& state);

/// Whether the settings have a drafter that the model can give.
result<void> check_drafter(const runner_config& config, const model_config& model);

}  // namespace deepinfer
