/// The hash model behind the seam of every model: same plans, same phases, same ring, no weights.
///
/// What a device program of a real model does, it does (hash_program.hpp): host arrays of a staging
/// slot travel in copy_in; forward moves blocks, starts slots, appends blocks to tables, takes ids,
/// drafts and lengths from the host, a row of the newest launched step or the slot (the remap), and
/// computes chains from KV; sample chooses, accepts, carries and drafts; copy_out brings the
/// results. So wrong tables, lengths, positions, drafts or remaps change tokens, and the canary
/// names where. This file is the host side, which also checks what plans alone can get wrong.
///
/// stage, set_masks, collect, reset and poison belong to the host thread; phases run on device
/// threads. Allocates where a ring slot grows, where an epoch starts and in the canary's oracle.
/// Source: scenarios 3, 4 and 6.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/model/hash_fence.hpp"
#include "runtime/model/hash_program.hpp"
#include "runtime/model/step_runner.hpp"

namespace deepinfer {

class hash_runner final : public step_runner {
public:
  hash_runner(const runner_config& config, const hash_model_config& model);
  ~hash_runner() override;

  /// What the outputs of a sequence are to be, told before its first step; without it they are the
  /// hash tokens. `prompt` lets the canary compare ids. From any thread.
  void register_script(seq_id sequence, hash_script script);
  /// Nobody starts the sequence again. From any thread.
  void forget_script(seq_id sequence);

  const canary_log& canary() const { return program_.canary(); }

  /// The block can be seen by others from now on (its contents are published and settled), or no
  /// longer: writes into a shared block are errors. Prefix hits are seen in plans and need no
  /// telling; poison takes it back, and so does a plan that gives the block away. Any thread.
  void note_shared(block_id block, bool is_shared) {
    program_.state().kv().note_shared(block, is_shared);
  }

  /// Highest position that steps wrote for a sequence, + 1; 0: none. While nothing runs.
  std::int32_t written_end(seq_id sequence) const { return program_.state().written_end(sequence); }
  /// Token rows given to experts, summed over layers. From any thread.
  std::uint64_t routed_rows() const { return program_.routed_rows(); }
  /// Tokens that steps were padded with. From any thread.
  std::uint64_t padded_tokens() const { return program_.padded_tokens(); }

  /// For tests: changes what a copy of `work` reads after it was written. copy_in: a staged array;
  /// copy_out: a sampled one, as if the next step wrote there. sample, forward: the draft (or
  /// token) or the length that the row behind its first one finds.
  void overwrite(device_work& work, step_phase copy);

  const runner_config& config() const override { return config_; }
  std::int32_t vocab_size() const override { return model_.vocab; }
  std::shared_ptr<device_work> stage(std::shared_ptr<const step_plan> plan) override;
  void set_masks(device_work& work, std::shared_ptr<const sample_gate> masks) override;
  void collect(const device_work& work, step_result& out) override;
  void reset() override;
  void poison(std::span<const block_id> blocks, std::span<const slot_id> slots) override;

  /// Works that are staged and not collected.
  std::size_t unfinished() const;

private:
  std::shared_ptr<const hash_script> script_of(seq_id sequence) const;  ///< null: none
  std::shared_ptr<hash_work> free_work();
  void remember(const step_plan& plan);
  std::vector<block_id> written_blocks(const step_plan& plan, std::size_t row);
  void check_plan(const step_plan& plan);
  void check_gates(const step_plan& plan);
  void stage_starts(const step_plan& plan, std::vector<hash_start>& out);

  runner_config config_;
  hash_model_config model_;
  hash_program program_;
  hash_fence fence_;  ///< host thread
  mutable std::mutex scripts_mutex_;
  std::unordered_map<seq_id, std::shared_ptr<const hash_script>> scripts_;
  std::vector<std::shared_ptr<hash_work>> ring_;  ///< host thread
  step_id last_staged_;                           ///< host thread
  std::vector<hash_launched_row> recent_;         ///< host thread
  std::vector<std::vector<block_id>> tables_;     ///< host thread; by slot, with a prefix cache
};

}  // namespace deepinfer
