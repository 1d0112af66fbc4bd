/// The hash model behind the seam of every model: same plans, same phases, same ring, no weights.
///
/// What a device program of a real model does, it does: host arrays of a staging slot travel in
/// copy_in; forward starts slots, appends blocks to tables, takes ids and lengths from the host, a
/// row of the newest launched step or the slot (the remap), and computes chains from KV; sample
/// chooses and carries; copy_out brings the results. So wrong tables, lengths, positions or remaps
/// change tokens, and the canary names where (hash_state.hpp). Rows of any width; one token per row
/// that yields: no drafts.
///
/// stage, collect, reset and poison belong to the host thread; phases run on device threads.
/// Allocates where a ring slot grows and in the canary's oracle, else not.
/// Source: scenarios 3 and 4.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/model/hash_model.hpp"
#include "runtime/model/hash_state.hpp"
#include "runtime/model/step_runner.hpp"

namespace deepinfer {

class hash_work;

class hash_runner final : public step_runner {
public:
  hash_runner(const runner_config& config, const hash_model_config& model);
  ~hash_runner() override;

  /// What the outputs of a sequence are to be, told before its first step; without it they are the
  /// hash tokens. `prompt` lets the canary compare ids. From any thread.
  void register_script(seq_id sequence, hash_script script);

  const canary_log& canary() const { return canary_; }

  /// For tests: changes what a copy of `work` reads after it was written. copy_in: a staged array;
  /// copy_out: a sampled one, as if the next step wrote there.
  void overwrite(device_work& work, step_phase copy);

  const runner_config& config() const override { return config_; }
  std::int32_t vocab_size() const override { return model_.vocab; }
  std::shared_ptr<device_work> stage(std::shared_ptr<const step_plan> plan) override;
  void collect(const device_work& work, step_result& out) override;
  void reset() override;
  void poison(std::span<const block_id> blocks, std::span<const slot_id> slots) override;

  /// Works that are staged and not collected.
  std::size_t unfinished() const;

  /// A row of a launched step, as the steps behind it remember it.
  struct launched_row {
    step_id step;
    slot_id slot;
    seq_id sequence;
    std::uint32_t epoch = 0;
  };

private:
  friend class hash_work;

  /// What the newest sampled step left for the next one's remap.
  struct sampled_rows {
    step_id step;
    std::vector<seq_id> sequences;
    std::vector<std::uint32_t> epochs;
    std::vector<token_id> tokens;  ///< -1 where the row gave none
  };

  std::shared_ptr<const hash_script> script_of(seq_id sequence) const;  ///< null: none
  std::shared_ptr<hash_work> free_work();
  void remember(const step_plan& plan);
  void mark_stale_rows(const hash_work& work);
  void run_forward(hash_work& work);
  void run_sample(hash_work& work);
  void check_row_map(const hash_work& work);
  bool is_row_whole(const hash_work& work, std::size_t row);
  void run_row(hash_work& work, std::size_t row);

  runner_config config_;
  hash_model_config model_;
  canary_log canary_;
  mutable std::mutex scripts_mutex_;
  std::unordered_map<seq_id, std::shared_ptr<const hash_script>> scripts_;
  std::vector<std::shared_ptr<hash_work>> ring_;  ///< host thread
  step_id last_staged_;                           ///< host thread
  std::vector<launched_row> recent_;              ///< host thread

  hash_state state_;     ///< compute stream
  sampled_rows newest_;  ///< compute stream
};

}  // namespace deepinfer
