/// Plans steps for the hash model as a scheduler would, and keeps the books a test needs:
/// sequences, blocks taken from a shuffled pool, the remap, drafts, gates and preemption, up to
/// `depth` steps in flight on a real device. Blocks are never given back.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "runtime/device/cpu_device.hpp"
#include "runtime/device/step_launch.hpp"
#include "runtime/device/virtual_device.hpp"
#include "runtime/model/hash_runner.hpp"

namespace deepinfer {

/// Completions by ticket; a ticket is the number of its step.
class step_inbox {
public:
  static void receive(void* user, ticket id, device_status status, const phase_times&);
  device_status wait_for(ticket id);

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<ticket, device_status>> done_;
};

struct driven_sequence {
  seq_id id;
  slot_id slot;
  std::uint32_t epoch = 0;
  hash_script script;
  std::shared_ptr<sampling_params> params;
  std::int32_t most_outputs = 8;
  std::vector<block_id> hits;  ///< cached blocks that the next epoch begins with

  bool has_started = false;       ///< in this epoch
  std::int32_t prefill_end = 0;   ///< known ids when the epoch started
  std::int32_t settled = 0;       ///< true positions
  std::int32_t in_flight = 0;     ///< most positions of launched rows
  std::int32_t rows = 0;          ///< launched and not settled
  std::int32_t fewest = 0;        ///< outputs that they give at least
  std::vector<block_id> blocks;   ///< its table
  std::uint64_t newest_step = 0;  ///< that yielded for it; 0: none
  std::int32_t newest_row = 0;
  bool has_failed = false;
  bool is_dead = false;                ///< a row of it had no width
  bool is_over = false;                ///< its outputs are complete
  std::vector<token_id> outputs;       ///< settled
  std::vector<token_id> drafts;        ///< of the newest settled row that yielded
  std::vector<std::int32_t> accepted;  ///< drafts accepted, by settled decode row
  std::vector<token_logprobs> logprobs;

  std::int32_t prompt_tokens() const { return static_cast<std::int32_t>(script.prompt.size()); }
  std::int32_t planned() const { return settled + in_flight; }
  bool is_gated() const { return script.grammar.has_value(); }
  bool is_launched_out() const {
    return has_failed || is_over ||
           static_cast<std::int32_t>(outputs.size()) + fewest >= most_outputs;
  }
  token_id known(std::int32_t position) const {
    const auto output = position - prompt_tokens();
    return output < 0 ? script.prompt[static_cast<std::size_t>(position)]
                      : outputs[static_cast<std::size_t>(output)];
  }
};

struct driver_options {
  std::int32_t depth = 2;
  std::int32_t chunk = 3;  ///< most prompt tokens of a row
  std::uint32_t seed = 1;  ///< block order, who is left out of a step, and all draws below
  std::uint32_t skip_percent = 0;
  std::uint32_t fresh_percent = 100;   ///< rows whose ids are known are fresh
  std::uint32_t truncate_percent = 0;  ///< decode rows with fewer drafts
  std::uint32_t split_percent = 0;     ///< decode steps whose total the device splits
  std::uint32_t delayed_gates = 0;     ///< percent of gated steps that open behind the next one
  bool on_cpu = false;
  virtual_device_config timing = {};
  hash_model_config model = {};
  runner_config sizes = small_sizes();

  static runner_config small_sizes() {
    runner_config config;
    config.max_num_seqs = 16;
    config.state_slots = 32;
    config.max_num_batched_tokens = 256;
    config.max_model_len = 512;
    config.num_kv_blocks = 256;
    config.block_size = 4;
    return config;
  }
};

class hash_driver {
public:
  explicit hash_driver(const driver_options& options);
  ~hash_driver();

  driven_sequence& add(hash_script script, sampling_params params, std::int32_t most_outputs);

  /// The next step's plan; rows() == 0 when nothing can be launched.
  std::shared_ptr<step_plan> plan();

  /// Stages and launches a plan; false where the device refused it.
  bool launch(std::shared_ptr<step_plan> plan);

  /// Gives a gated step its masks and launches its rest. `spoil` may change them before.
  void open_gate(std::size_t of_flight, void (*spoil)(sample_gate&) = nullptr);

  /// Waits for the oldest step and takes its results.
  step_result settle();

  /// Launches and settles until every sequence has its outputs.
  void run();

  /// The same where the device may end sequences earlier, by its stop mask.
  void run_to_stops();

  /// Takes slot and blocks: the sequence comes back in a new epoch, with its first `hits` cached.
  /// Rows in flight are dropped.
  void preempt(driven_sequence& one, std::int32_t hits = 0);

  std::vector<token_id> expected(const driven_sequence& one) const;
  driven_sequence& find(seq_id id);

  const hash_model_config& model() const { return options_.model; }
  hash_runner& runner() { return runner_; }
  device& dev() { return *device_; }
  std::size_t in_flight() const { return in_flight_.size(); }
  device_work& newest_work() { return *in_flight_.back().work; }
  block_id take_block();
  std::uint64_t last_step() const { return last_step_; }

  std::deque<driven_sequence> sequences;

private:
  struct launched {
    std::shared_ptr<step_plan> plan;
    std::shared_ptr<device_work> work;
    held_step* held = nullptr;  ///< waits for its masks
  };

  bool draws(std::uint32_t percent) { return random_() % 100 < percent; }
  void plan_row(driven_sequence& one, step_plan& out);
  void plan_ids(driven_sequence& one, step_plan& out, bool is_prefill, std::int32_t width);
  void plan_blocks(driven_sequence& one, step_plan& out, std::int32_t width);
  void finish_plan(step_plan& out);
  void mark_launched(const step_plan& plan, std::int32_t row);
  void take_row(const step_plan& plan, const step_result& result, std::int32_t row);
  slot_id take_slot() { return slot_id{(next_slot_++ * 7 + 3) % runner_.config().state_slots}; }

  driver_options options_;
  std::mt19937 random_;
  step_inbox inbox_;
  hash_runner runner_;
  std::vector<block_id> free_blocks_;
  std::deque<launched> in_flight_;
  std::uint64_t last_step_ = 0;
  std::int32_t next_slot_ = 0;
  std::unique_ptr<device> device_;  // last: its work ends before anything it touches
};

}  // namespace deepinfer
