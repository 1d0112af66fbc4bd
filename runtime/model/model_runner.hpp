/// The step_runner of DeepSeek-V4.1: a staging ring of depth + 1 step programs over one rank's
/// state.
///
/// stage() and collect() belong to the worker's thread, the phases to the device's streams. A
/// slot's sampling parameters are held from its start until the next start of that slot, which the
/// release of the slot behind its fence makes safe. Errors of `make`: invalid_argument where the
/// sizes or the drafter do not fit the model.
/// Source: architecture.md 3, 5.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/model/step_program.hpp"
#include "runtime/model/step_runner.hpp"
#include "runtime/model/weights.hpp"

namespace deepinfer {

class model_runner final : public step_runner {
public:
  static result<std::unique_ptr<model_runner>> make(std::shared_ptr<const model_weights> weights,
                                                    const runner_config& config);

  const runner_config& config() const override { return device_.config; }
  std::int32_t vocab_size() const override { return device_.model.config().vocab_size; }
  std::shared_ptr<device_work> stage(std::shared_ptr<const step_plan> plan) override;
  void set_masks(device_work& work, std::shared_ptr<const sample_gate> masks) override;
  void collect(const device_work& work, step_result& out) override;
  void reset() override;
  void poison(std::span<const block_id> blocks, std::span<const slot_id> slots) override;

  /// Takes another drafter than the settings name, before the first step: for drafts that are
  /// known in advance.
  void set_drafter(std::unique_ptr<drafter> other) { device_.drafts = std::move(other); }

  /// Bytes per slot and block.
  const kv_layout& layout() const { return device_.kv.layout; }

private:
  /// What a slot's sampling parameters point to.
  struct slot_lists {
    std::vector<kernels::token_bias> bias;
    std::vector<std::int32_t> stop_ids;
  };

  model_runner(std::shared_ptr<const model_weights> weights, kv_layout layout,
               const runner_config& config);
  kernels::slot_sampling sampling_of(const slot_start& start);
  /// Where late layers begin with each start, and what they keep of the step.
  void bound_replay(const step_plan& plan, step_inputs& inputs);
  std::size_t program_index(const device_work& work) const;

  step_device_state device_;
  std::vector<std::shared_ptr<step_program>> ring_;
  std::vector<slot_lists> lists_;         ///< [slots]
  std::vector<std::int32_t> late_begin_;  ///< [slots] as the device will have it; empty: no replay
  std::size_t staged_ = 0;
  std::shared_ptr<row_columns> newest_;  ///< of the step staged last
};

}  // namespace deepinfer
