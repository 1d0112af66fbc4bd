/// One slot of the hash runner's staging ring: a step's arrays on the host, their copy on the
/// device, and the way back.
///
/// Arrays are summed when they are staged and sampled and again when they have been copied. Phases
/// out of order belong to another life of the slot: event_generation_mixed. The host thread owns
/// what is marked so, the phases the rest. Source: scenarios 4.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "messages/plan.hpp"
#include "runtime/base/device_work.hpp"
#include "runtime/model/hash_state.hpp"

namespace deepinfer {

class hash_program;

/// A row of a launched step, as the steps behind it remember it.
struct hash_launched_row {
  step_id step;
  slot_id slot;
  seq_id sequence;
  std::uint32_t epoch = 0;
  std::vector<block_id> blocks{};  ///< a chunk's, with a prefix cache: those it writes
};

/// What travels to the device. Assignment keeps capacity.
struct hash_arrays {
  step_id before;  ///< the step launched before this one
  /// Rows of steps that may be in flight: of those launched before, and the step's own.
  std::vector<hash_launched_row> recent;
  step_plan plan;
  std::vector<hash_start> starts;  ///< of plan.starts

  std::uint64_t checksum() const;
};

/// What travels back. Row i gave `given[i]` tokens; they are at i * stride, with their chains.
struct hash_outputs {
  std::int32_t stride = 0;  ///< 1 + num_drafts
  std::vector<std::int32_t> given;
  std::vector<token_id> tokens;
  std::vector<std::uint64_t> chains;  ///< the logprobs
  std::vector<std::int32_t> asked;    ///< 1: the row wants logprobs
  std::vector<std::int32_t> widths;
  std::vector<token_id> drafts;  ///< [rows, num_drafts]
  std::vector<float> confidences;
  std::int32_t has_confidences = 0;

  void clear(std::size_t rows, std::int32_t drafts_per_row);
  std::uint64_t checksum() const;
};

/// What a row has become on the device.
struct hash_row {
  bool is_whole = false;   ///< slot, length and source fit together: it computes
  bool is_dead = false;    ///< the stop mask has ended its sequence
  std::int32_t first = 0;  ///< position of its first query
  std::int32_t width = 0;
  std::size_t begin = 0;  ///< of its ids and chains
};

class hash_work final : public device_work {
public:
  explicit hash_work(hash_program* program) : program_(program) {}

  step_id step() const override { return step_; }
  bool is_gated() const override { return plan && plan->is_gated(); }
  void begin(step_phase phase) override;
  device_status run(step_phase phase, const stream_ref& stream) override;

  /// Host thread: a new life for `next`.
  void open(std::shared_ptr<const step_plan> next);

  /// Host thread: something that this step reads has been given away. Reported if it still runs.
  void suspect(std::string text);

  // Host thread.
  step_id step_;
  std::shared_ptr<const step_plan> plan;
  bool is_free = true;
  std::shared_ptr<const sample_gate> masks;  ///< set before sample_gated is launched

  hash_arrays staged;
  std::uint64_t staged_sum = 0;
  hash_arrays on_device;
  bool is_prepared = false;  ///< the fix-up has been done when forward began
  std::vector<hash_row> rows;
  std::vector<token_id> ids;
  std::vector<std::uint64_t> chains;
  hash_outputs outputs;
  std::uint64_t outputs_sum = 0;
  hash_outputs returned;
  std::atomic<bool> is_complete{false};

private:
  bool is_next(step_phase phase);
  void report_suspicion();

  hash_program* program_;
  std::int32_t phases_run_ = 0;
  bool has_reported_ = false;
  std::string suspicion_;
  std::atomic<bool> is_suspected_{false};
};

}  // namespace deepinfer
