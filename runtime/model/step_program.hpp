/// One step of a model as a program of phases, reused by every step that gets its staging ring
/// slot.
///
///   copy_in   host columns to device columns
///   forward   fix-up (slots, block tables, lengths, ids), layers, logits of the rows that yield
///   sample    next ids and logprobs into this step's arrays, slots' lengths and newest ids
///   copy_out  ids and logprobs to host columns
/// The remap's "row of the newest launched step" is read from the program staged before this one.
/// Source: architecture.md 3.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/sampling/sample_rows.hpp"
#include "messages/plan.hpp"
#include "runtime/base/device_work.hpp"
#include "runtime/model/deepseek_v41.hpp"
#include "runtime/model/step_inputs.hpp"

namespace deepinfer {

/// Most alternatives a token's logprobs may have.
inline constexpr std::int32_t max_logprobs = 20;

/// What a step gives, on one side of the copy out.
struct step_outputs {
  step_outputs(const runner_config& config, std::int32_t best_max);

  lazy_array<std::int32_t> ids;               ///< [yields]
  lazy_array<kernels::sample_status> status;  ///< [yields]
  lazy_array<std::int32_t> best_counts;       ///< [yields]
  lazy_array<float> chosen_logprobs;          ///< [yields]
  lazy_array<std::int32_t> best_ids;          ///< [yields, best_max]
  lazy_array<float> best_logprobs;            ///< [yields, best_max]
};

/// What all programs of a runner share on the device. Only the compute stream touches it.
struct step_device_state {
  step_device_state(std::shared_ptr<const model_weights> weights, kv_layout layout,
                    const runner_config& config);

  runner_config config;
  std::int32_t best_max;
  kv_state kv;
  deepseek_v41 model;
  lazy_array<kernels::slot_sampling> sampling;  ///< [slots]
  lazy_array<std::int32_t> next_position;       ///< [rows]
  lazy_array<std::int32_t> yield_position;      ///< [yields]
  lazy_array<std::int32_t> token_id, token_slot, token_position, row_token,
    row_first;                    ///< [tokens]
  lazy_array<float> logits;       ///< [yields, vocab]
  lazy_array<std::byte> scratch;  ///< of sampling, for scratch_threads
  std::int32_t scratch_threads = 0;
};

/// Ids that a step sampled, per row, on the device; -1 where a row yields none.
using sampled_column = std::shared_ptr<const lazy_array<std::int32_t>>;

class step_program final : public device_work {
public:
  step_program(step_device_state& shared, const runner_config& config);

  /// Host side, before launch. `before`: ids of the step staged last, or null.
  void stage(std::shared_ptr<const step_plan> plan, sampled_column before);
  /// Host side, after the last phase.
  void collect(step_result& out) const;
  /// Lets go of the plan; after `collect`.
  void forget();

  step_inputs& inputs() { return inputs_; }
  const step_plan& plan() const { return *plan_; }  ///< from stage to forget
  sampled_column sampled() const { return sampled_; }
  step_id step() const override { return step_; }
  device_status run(step_phase phase, const stream_ref& stream) override;

private:
  void forward(const stream_ref& stream);
  void fix_up(const stream_ref& stream);
  void sample(const stream_ref& stream);
  device_status copy_out();

  step_device_state& shared_;
  step_inputs inputs_;
  step_outputs made_, copied_;  ///< device side, host side
  const std::shared_ptr<lazy_array<std::int32_t>>
    sampled_;  ///< [rows] device: id per row, -1 where it yields none
  sampled_column before_;
  std::shared_ptr<const step_plan> plan_;
  step_id step_;
  device_status status_;
};

}  // namespace deepinfer
