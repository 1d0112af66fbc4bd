/// The decisions of one rank's scheduler: admit, plan step n+1, settle step n, abort. One loop for
/// every depth; depth 1 is the same loop with one step in flight. Called by the scheduler actor.
///
/// The caller's loop: apply what arrived (submit, abort, grant, settle), launch what `plan` gives
/// while it gives steps, then `take_outbox` and send what it holds. Single-threaded; no clock, no
/// I/O, no device.
///
/// Plans use blocks and slots the core already holds ("credit"); `outbox::want` asks for more ahead
/// of need. A short answer is fine: the rest stays owed and must come as a later `grant` (kv_pool
/// keeps what it owes and hands it over on release), so the core never asks twice for one block.
/// Nothing is preempted: a sequence starts only when blocks for its whole life are unpromised.
///
/// Owns: I01-I09, I11, I13, I15, I16, I19, I35-I37, I39-I41, I54, I55, I58, I59.
/// Errors: bad requests end with one final record in the outbox; broken callers meet a DI_CHECK.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "messages/kv.hpp"
#include "messages/plan.hpp"
#include "messages/request.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/core/admission.hpp"
#include "runtime/core/batch_policy.hpp"
#include "runtime/core/capacity.hpp"
#include "runtime/core/sequence_state.hpp"

namespace deepinfer {

class token_texts;

/// Fixed for the core's life; checked by the constructor (a bad value is a DI_CHECK: the engine's
/// configuration is validated long before).
struct scheduler_config {
  rank_id rank;
  std::int32_t depth = 2;                      ///< most steps in flight, 1..depth_limit
  std::int32_t num_drafts = 0;                 ///< d, in the capacity margin
  std::int32_t draft_overhang = 0;             ///< w, in the capacity margin and every reserve
  std::int32_t max_num_seqs = 256;             ///< most active sequences; retiring ones are not
  std::int32_t max_num_batched_tokens = 8192;  ///< most tokens of one step, all row widths together
  std::int32_t chunk_size = 0;                 ///< most prompt tokens of one row; 0: budget only
  std::int32_t max_model_len = 0;              ///< prompt and output ids of a sequence together
  std::int32_t num_kv_blocks = 0;
  std::int32_t block_size = 64;  ///< tokens per block
  std::int32_t state_slots = 512;
  token_id eos = -1;              ///< -1: none
  std::vector<token_id> eos_ids;  ///< further ids that end a sequence unless it ignores eos
  std::int32_t vocab_size = 0;
  bool mixed_steps = false;        ///< may a step hold prefill and decode rows together
  std::int32_t max_queued = 4096;  ///< most requests waiting to start
};

/// What the core has to say since it was last asked. Vectors keep their capacity when reused.
struct scheduler_outbox {
  chunk_batch chunks;   ///< to the gateway
  lease_return leases;  ///< to the release collector
  kv_reserve want;      ///< to the allocator
  /// `leases` must be sent: it has entries, or a fence of earlier ones has settled.
  bool leases_due = false;

  bool has_chunks() const { return !chunks.chunks.empty(); }
  bool has_leases() const { return leases_due; }
  bool has_want() const { return want.blocks > 0 || want.slots > 0; }
};

/// Gauges and running totals.
struct scheduler_stats {
  std::int32_t queued = 0;    ///< waiting to start
  std::int32_t running = 0;   ///< active: may be planned again
  std::int32_t retiring = 0;  ///< last step launched, not ended yet
  std::int32_t ended = 0;     ///< ended, still named by a launched step
  std::int32_t inflight_steps = 0;
  std::int64_t inflight_tokens = 0;  ///< most tokens the launched steps may yield
  std::int64_t promised_blocks = 0;  ///< for sequences that have started and not ended
  std::int64_t deferred_blocks = 0;  ///< handed to the collector, fence not settled
  std::int64_t deferred_slots = 0;
  std::int64_t credit_blocks = 0;  ///< held here, in no table
  std::int64_t credit_slots = 0;
  std::int64_t owed_blocks = 0;  ///< asked for, not granted yet
  std::int64_t owed_slots = 0;
  std::int64_t table_blocks = 0;       ///< in the block tables of started sequences
  std::int64_t held_slots = 0;         ///< by started sequences
  std::int64_t oldest_queued_us = -1;  ///< arrival of the head of the queue; -1: none waits

  std::uint64_t steps = 0;  ///< launched so far
  std::uint64_t prompt_tokens = 0;
  std::uint64_t emitted_tokens = 0;
  std::uint64_t overrun_rows = 0;      ///< settled after their sequence had ended
  std::uint64_t discarded_tokens = 0;  ///< produced and not emitted
  std::uint64_t final_records = 0;
  std::uint64_t failed_steps = 0;
  std::uint64_t late_messages = 0;  ///< results and aborts that came too late and changed nothing

  friend bool operator==(const scheduler_stats&, const scheduler_stats&) = default;
};

class scheduler_core {
public:
  /// `texts` is needed only for stop strings and must outlive the core; null: requests that have
  /// stop strings are refused.
  scheduler_core(scheduler_config config, const token_texts* texts);
  ~scheduler_core();
  scheduler_core(const scheduler_core&) = delete;
  scheduler_core& operator=(const scheduler_core&) = delete;

  /// Queues a sequence. One that cannot be served ends at once with one final record.
  void submit(sequence_request request, std::int64_t now_us);

  /// Ends a sequence now, whatever it is doing; nothing of it is emitted afterwards. Unknown and
  /// already ended ids are legal and change nothing [I54][I55].
  void abort(seq_id sequence, finish_reason reason, errc code, std::string_view message);

  /// Blocks and slots from the allocator, asked for or not.
  void grant(const kv_grant& granted);

  /// Plans one step. True: `out` is a launched step and must be sent to the worker. False: nothing
  /// has changed and `out` is empty: as many steps as allowed are in flight, or no row can run
  /// [I09]. Allocates nothing when only decode rows continue.
  bool plan(step_plan& out);

  /// Takes the result of the oldest launched step. A result of a step that has settled before is
  /// dropped and counted [I55]; one out of order is a DI_CHECK [I01].
  void settle(const step_result& result);

  /// Swaps what has gathered into `out`, whose old contents are dropped.
  void take_outbox(scheduler_outbox& out);

  /// Most steps in flight from now on, 1..config().depth. Launched steps are not recalled.
  void set_depth(std::int32_t depth);

  /// While paused nothing is planned; what is in flight settles.
  void pause() { is_paused_ = true; }
  void resume() { is_paused_ = false; }

  /// Refuses every later submit with `draining`; what is queued and running goes on.
  void drain() { is_draining_ = true; }

  /// The rank is lost: every started sequence ends with one `error` record; steps in flight,
  /// blocks, slots and credit are forgotten (the pool is reset with the rank); late results are
  /// dropped.
  /// Returns the requests that had not started, in queue order, to be queued elsewhere.
  std::vector<sequence_request> fail_all_started(errc code, std::string_view message);

  std::int32_t in_flight() const { return static_cast<std::int32_t>(launched_ - settled_); }
  /// A sequence is queued or running, or a step is in flight.
  bool has_work() const { return !sequences_.empty() || in_flight() > 0; }
  std::int32_t depth() const { return depth_; }
  bool is_paused() const { return is_paused_; }
  bool is_draining() const { return is_draining_; }
  step_id newest_launched() const { return {launched_}; }
  step_id newest_settled() const { return {settled_}; }
  const scheduler_config& config() const { return config_; }
  /// All gauges: walks the sequences, so not for every step.
  scheduler_stats stats() const;
  /// The two of them that every step's trace wants, without the walk.
  std::uint64_t emitted_tokens() const { return totals_.emitted_tokens; }
  std::int64_t deferred_blocks() const { return book_.parked_blocks(); }

  /// Whole-state check, O(everything): sums, sets, conservation of what the core holds. DI_CHECKs.
  void check_invariants() const;

private:
  struct launched_step {
    step_id step;
    std::vector<sequence_state*> rows;  ///< alive while a launched step names them
    std::vector<std::uint32_t> epochs;
  };
  struct row_pick {
    sequence_state* sequence;
    row_kind kind;
    std::int32_t width;
    std::int32_t blocks;  ///< to append
  };
  struct room {
    std::int64_t tokens, blocks, slots, promises, active;
  };

  launched_step& record_of(std::uint64_t step) { return records_[step % records_.size()]; }
  const launched_step& record_of(std::uint64_t step) const {
    return records_[step % records_.size()];
  }

  // scheduler_core.cpp
  result<void> check_request(const sequence_request& request) const;
  void refuse(const sequence_request& request, finish_reason reason, errc code,
              std::string message);
  void end(sequence_state& sequence, sequence_finish finish, sequence_chunk chunk);
  void give_back(sequence_state& sequence);
  void leave_running(const sequence_state& sequence);
  void park(lease_return::parked entry);
  void erase_if_unreferenced(sequence_state& sequence);

  // scheduler_plan.cpp
  void pick_prefills(room& left);
  void pick_decodes(room& left);
  bool pick_chunk(sequence_state& sequence, room& left);
  std::int32_t blocks_missing(const sequence_state& sequence, std::int64_t tokens) const;
  void commit(step_plan& out);
  void commit_row(step_plan& out, const row_pick& pick, launched_step& record);
  void admit(sequence_state& sequence);
  void retire_if_foreseen(sequence_state& sequence);

  // scheduler_settle.cpp
  void settle_row(sequence_state& sequence, const step_result& result, std::int32_t row);
  void fail_row(sequence_state& sequence, const step_result& result);
  void settle_ended_row(sequence_state& sequence, std::int64_t tokens);
  void return_surplus(sequence_state& sequence);
  kv_reserve next_want() const;

  scheduler_config config_;
  const token_texts* texts_;
  pipeline_shape shape_;
  std::int32_t depth_;
  bool is_paused_ = false;
  bool is_draining_ = false;

  // All sequences not gone yet. Looked up, never iterated where order could reach a message.
  std::unordered_map<seq_id, std::unique_ptr<sequence_state>> sequences_;
  admission_queue queue_;
  promise_book book_;
  std::vector<sequence_state*> running_;  ///< in the order they started
  std::int32_t retiring_ = 0;
  std::int32_t ended_ = 0;
  std::uint64_t arrivals_ = 0;
  std::uint64_t started_ = 0;

  std::vector<block_id> credit_blocks_;  ///< taken from the back
  std::vector<slot_id> credit_slots_;
  std::int64_t owed_blocks_ = 0;
  std::int64_t owed_slots_ = 0;

  std::uint64_t launched_ = 0;      ///< newest step launched
  std::uint64_t settled_ = 0;       ///< newest step settled
  std::uint64_t parked_fence_ = 0;  ///< newest fence handed to the collector
  std::array<launched_step, depth_limit + 1> records_;

  std::vector<row_pick> picks_;  ///< of the plan in the making
  std::vector<decode_candidate> candidates_;
  scheduler_outbox outbox_;
  scheduler_stats totals_;
};

}  // namespace deepinfer
