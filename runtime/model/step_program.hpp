/// One step of a model as a program of phases, reused by every step that gets its staging ring
/// slot.
///
///   copy_in       host columns to device columns
///   forward       fix-up (slots, tables, widths, lengths, ids), layers, logits of the queries
///   sample        next ids, acceptance, lengths, newest ids and drafts of all rows but the gated
///   sample_gated  the same of the gated rows, under the masks that the host has sent
///   copy_out      what the rows gave to host columns
/// Rows fall into groups: silent ones (chunks that are not the last), plain ones, gated ones.
/// A row whose logits give no id fails alone: its step goes on, and what is carried of it is an id
/// that may be looked up (advance_slots).
/// Logits of gated rows are the program's own: later steps run before they are read.
/// The remap's "row of the newest launched step" is read from the program staged before this one.
/// Source: architecture.md 3.
#pragma once

#include <cstdint>
#include <memory>

#include "messages/plan.hpp"
#include "runtime/base/device_work.hpp"
#include "runtime/model/row_columns.hpp"
#include "runtime/model/row_group.hpp"
#include "runtime/model/step_device_state.hpp"
#include "runtime/model/step_inputs.hpp"

namespace deepinfer {

class step_program final : public device_work {
public:
  explicit step_program(step_device_state& shared);

  /// Host side, before launch. `before`: rows of the step staged last, or null.
  void stage(std::shared_ptr<const step_plan> plan, std::shared_ptr<row_columns> before);
  /// Host side, before sample_gated is launched.
  void set_masks(std::shared_ptr<const sample_gate> masks);
  /// Host side, after the last phase.
  void collect(step_result& out) const;
  /// Lets go of the plan; after `collect`.
  void forget();

  step_inputs& inputs() { return inputs_; }
  const step_plan& plan() const { return *plan_; }  ///< from stage to forget
  std::shared_ptr<row_columns> after() const { return after_; }
  step_id step() const override { return step_; }
  bool is_gated() const override { return is_gated_; }
  device_status run(step_phase phase, const stream_ref& stream) override;

private:
  void group_rows();
  void forward(const stream_ref& stream);
  void open_slots(const stream_ref& stream);
  void fix_up(const stream_ref& stream);
  void list_queries(const stream_ref& stream, row_group& group);
  void point_at_masks();
  step_rows rows();
  void copy_out();
  row_error collect_row(const row_group& group, std::int32_t i, bool has_logprobs,
                        step_result& out) const;

  step_device_state& shared_;
  step_inputs inputs_;
  row_group silent_, plain_, gated_;
  const std::shared_ptr<row_columns> after_;  ///< what this step's rows carry on
  std::shared_ptr<row_columns> before_;
  lazy_array<std::int32_t> row_begin_, first_position_;  ///< [rows + 1], [rows] device
  lazy_array<float> gated_logits_;                       ///< [queries, vocab] device
  lazy_array<const std::uint32_t*> masks_;               ///< [queries] device, of gated rows
  lazy_array<std::int32_t> mask_of_;                     ///< [gated rows] the first mask of each
  std::shared_ptr<const sample_gate> gate_;

  lazy_array<std::int32_t> widths_, drafts_;  ///< host: [rows + 1], [rows, drafts]
  lazy_array<float> confidences_;             ///< host: [rows, drafts]
  std::shared_ptr<const step_plan> plan_;
  step_id step_;
  bool is_gated_ = false;
};

}  // namespace deepinfer
