/// The decisions of one rank's scheduler: admit, plan step n+1, settle step n, preempt, abort. One
/// loop for every depth; depth 1 is the same loop with one step in flight. Called by the scheduler
/// actor.
///
/// The caller's loop: apply what arrived (submit, abort, grant), launch what `plan` gives, settle
/// the oldest step once `depth` are in flight or nothing can be launched, then `take_outbox` and
/// send what it holds. Single-threaded; no clock, no I/O, no device.
///
/// Plans use blocks and slots the core already holds ("credit"); `outbox::want` asks for more ahead
/// of need. A short answer is fine: the rest stays owed and must come as a later `grant` (kv_pool
/// keeps what it owes and hands it over on release), so the core never asks twice for one block.
///
/// A sequence starts when a slot and blocks for all its known ids are there. When a decode row
/// lacks blocks that neither the pool, nor fences, nor retiring sequences will give, others are
/// preempted by policy, and the row waits for their fence [I14].
///
/// Owns: I01-I09, I11, I13-I16, I19, I26, I35-I37, I39-I41, I45, I48-I50, I53-I59.
/// Errors: bad requests end with one final record in the outbox; broken callers meet a DI_CHECK.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/core/batch_policy.hpp"
#include "runtime/core/block_book.hpp"
#include "runtime/core/scheduler_config.hpp"
#include "runtime/core/sequence_state.hpp"
#include "runtime/core/verify_sizer.hpp"
#include "runtime/core/victim.hpp"

namespace deepinfer {

class scheduler_core {
public:
  scheduler_core(scheduler_config config, const scheduler_helpers& helpers);
  ~scheduler_core();
  scheduler_core(const scheduler_core&) = delete;
  scheduler_core& operator=(const scheduler_core&) = delete;

  /// Queues a sequence. One that cannot be served ends at once with one final record.
  void submit(sequence_request request, std::int64_t now_us);

  /// Ends a sequence now, whatever it is doing; nothing of it is emitted afterwards. Unknown and
  /// already ended ids are legal and change nothing [I54][I55].
  void abort(seq_id sequence, finish_reason reason, errc code, std::string_view message);
  void abort_all(finish_reason reason, errc code, std::string_view message);

  /// Takes the blocks of a running sequence and queues it again, as want of room would. False: it
  /// does not run.
  bool preempt(seq_id sequence);
  void preempt_all();

  /// Plans no further row of a sequence, or plans them again. Rows that are launched settle as
  /// ever, and it keeps what it has; where somebody lacks room, or nothing else could go on, it
  /// gives way first. Unknown and ended ids are legal and change nothing.
  void hold(seq_id sequence, bool is_held);

  /// Blocks, slots and cached prefixes from the allocator, asked for or not.
  void grant(const kv_grant& granted);

  /// Plans one step. True: `out` is a launched step and must be sent to the worker. False: `out` is
  /// empty: as many steps as allowed are in flight, or no row can run [I09]; then at most a
  /// sequence was preempted to make room. Allocates nothing when only decode rows continue.
  bool plan(step_plan& out);

  /// The plan that failed has made room instead: plan again, though nobody may have a message.
  bool has_made_room() const { return has_made_room_; }

  /// Takes the result of the oldest launched step. A result of a step that has settled before is
  /// dropped and counted [I55]; one out of order is a DI_CHECK [I01].
  void settle(const step_result& result);

  /// Swaps what has gathered into `out`, whose old contents are dropped.
  void take_outbox(scheduler_outbox& out);

  /// What has gathered so far. For those who watch.
  const scheduler_outbox& gathered() const { return outbox_; }

  /// Most steps in flight from now on, 1..max_depth. Launched steps are not recalled.
  void set_depth(std::int32_t depth);
  void set_policy(const scheduler_policy& policy) { config_.policy = policy; }

  /// While paused nothing is planned; what is in flight settles.
  void pause() { is_paused_ = true; }
  void resume() { is_paused_ = false; }

  /// Refuses every later submit with `draining`; what is queued and running goes on.
  void drain() { is_draining_ = true; }

  /// The rank is lost: every sequence that had started ends with one `error` record; steps in
  /// flight, blocks, slots and credit are forgotten (the pool is reset with the rank); late results
  /// are dropped.
  /// Returns the requests that had not started, in queue order, to be queued elsewhere.
  std::vector<sequence_request> fail_all_started(errc code, std::string_view message);

  std::int32_t in_flight() const { return static_cast<std::int32_t>(launched_ - settled_); }
  /// A sequence is queued or running, or a step is in flight.
  bool has_work() const { return !sequences_.empty() || in_flight() > 0; }
  bool has_unfinished() const { return std::ssize(sequences_) > ended_; }
  /// A sequence has not ended and is not held.
  bool has_wanted() const { return std::ssize(sequences_) > ended_ + held_; }
  std::int32_t depth() const { return depth_; }
  bool is_paused() const { return is_paused_; }
  bool is_draining() const { return is_draining_; }
  step_id newest_launched() const { return {launched_}; }
  step_id newest_settled() const { return {settled_}; }
  const scheduler_config& config() const { return config_; }
  /// All gauges: walks the sequences, so not for every step.
  scheduler_stats stats() const;
  /// Those that every step's trace wants, without the walk.
  std::uint64_t emitted_tokens() const { return totals_.emitted_tokens; }
  std::uint64_t overrun_rows() const { return totals_.overrun_rows; }
  std::int64_t deferred_blocks() const { return book_.promised(); }

  /// Null: unknown, or gone. For those who watch.
  const sequence_state* find(seq_id sequence) const;

  /// Whole-state check, O(everything): sums, sets, conservation of what the core holds. DI_CHECKs.
  void check_invariants() const;

  /// What later decisions depend on, between calls of `take_outbox` [state_digest.hpp].
  void describe(state_digest& out) const;

private:
  struct launched_step {
    step_id step;
    std::vector<sequence_state*> rows;  ///< alive while a launched step names them
    std::vector<std::uint32_t> epochs;
    std::vector<std::uint8_t> gated;
    std::vector<std::int32_t> masks;  ///< that each row would need: its width, 1 for a chunk
    bool is_gate_closed = false;
    bool has_moves = false;   ///< to or from the host tier
    std::int32_t tokens = 0;  ///< query tokens of a decode step, else 0
  };
  struct row_pick {
    sequence_state* sequence;
    row_kind kind;
    std::int32_t width;
    std::int32_t blocks;  ///< to append
    std::size_t order;    ///< among the decode candidates
  };
  struct room {
    std::int64_t tokens, blocks, slots, active;
    std::int64_t outside;  ///< blocks the pool could give, evicting where it must
    std::int64_t coming;   ///< blocks behind fences and of retiring sequences
  };

  launched_step& record_of(std::uint64_t step) { return records_[step % records_.size()]; }
  const launched_step& record_of(std::uint64_t step) const {
    return records_[step % records_.size()];
  }

  // scheduler_core.cpp
  void check_config() const;
  result<void> check_request(const sequence_request& request) const;
  void refuse(const sequence_request& request, finish_reason reason, errc code,
              std::string message);
  void end(sequence_state& sequence, sequence_finish finish, sequence_chunk chunk);
  void give_back(sequence_state& sequence, step_id fence);
  void leave_running(sequence_state& sequence);
  void erase_if_unreferenced(sequence_state& sequence);
  std::vector<sequence_state*> by_arrival(bool (*wanted)(const sequence_state&)) const;

  // scheduler_plan.cpp
  bool has_decodes() const;
  bool wants_prefill() const;
  bool is_full() const;
  void pick_prefills(room& left);
  bool pick_chunk(sequence_state& sequence, room& left);
  bool pick_start(sequence_state& sequence, room& left);
  void pick_decodes(room& left);
  std::int32_t decode_width(const sequence_state& sequence) const;
  std::int32_t decode_need(const sequence_state& sequence, std::int32_t width) const;
  std::int32_t blocks_missing(const sequence_state& sequence, std::int64_t tokens) const;
  std::int64_t start_tokens(const sequence_state& sequence) const;

  void pick_decodes_by_safety(room& left);

  // scheduler_commit.cpp
  void commit(step_plan& out);
  void commit_row(step_plan& out, const row_pick& pick, launched_step& record);
  void append_blocks(step_plan& out, const row_pick& pick);
  void start(sequence_state& sequence);
  void retire_if_foreseen(sequence_state& sequence);
  std::int32_t total_width(const step_plan& plan);
  std::span<const float> old_confidences(const sequence_state& sequence, step_id step) const;

  // scheduler_room.cpp
  room current_room() const;
  std::int64_t outside() const;
  std::int64_t retiring_blocks() const;
  victim_candidate view_of(const sequence_state& sequence) const;
  bool is_safer(const sequence_state& a, const sequence_state& b) const;
  void want_room(std::int64_t blocks, room& left, const sequence_state& requester);
  sequence_state* next_victim(const sequence_state& requester) const;
  bool may_displace(const sequence_state& victim, const sequence_state& requester) const;
  bool is_picked(const sequence_state& sequence) const;
  void take_away(sequence_state& sequence, preempt_cause why);
  void queue_again(sequence_state& sequence);
  void break_stall();
  bool displace_held();
  bool ends_too_large(sequence_state& sequence);

  // scheduler_settle.cpp
  void observe_times(const step_result& result, const launched_step& record);
  void settle_row(sequence_state& sequence, const step_result& result, std::int32_t row,
                  std::uint32_t epoch);
  void keep_tokens(sequence_state& sequence, const step_result& result, std::int32_t row,
                   const ledger_row& launched, bool is_stale);
  void go_on(sequence_state& sequence, const step_result& result, std::int32_t row);
  void count_tokens(const ledger_row& launched, const step_result& result, std::int32_t row,
                    std::int64_t kept, std::int64_t given);
  void remember_drafts(sequence_state& sequence, const step_result& result, std::int32_t row);
  void fail_row(sequence_state& sequence, const step_result& result, std::uint32_t epoch);
  void deliver_no_more(sequence_state& sequence);
  void compute_again(sequence_state& sequence);
  void fail_dependents(step_id failed, bool has_moves);
  void settle_ended_row(sequence_state& sequence, std::int64_t tokens);
  void return_surplus(sequence_state& sequence);
  void end_with_error(sequence_state& sequence, errc code, std::string message,
                      sequence_chunk chunk);

  // scheduler_want.cpp
  void want_credit(kv_reserve& want) const;
  void want_lookups(kv_reserve& want);
  void publish(sequence_state& sequence, std::int64_t blocks, step_id pending);
  void key_blocks(sequence_state& sequence, std::int64_t blocks);
  void take_hit(const prefix_hit& hit);
  void forget_hit(sequence_state& sequence);
  void look_up_later(sequence_state& sequence) const;
  bool is_forgetting() const { return outbox_.want.forget || forgets_due_ > 0; }

  // scheduler_gate.cpp
  bool poll_grammar(sequence_state& sequence);
  void open_gates();
  bool can_open(const launched_step& record) const;
  bool is_live_row(const sequence_state& sequence, std::uint32_t epoch) const;
  void fill_masks(sequence_state& sequence, std::int32_t width, std::size_t words,
                  std::vector<std::uint32_t>& masks);
  void allow_end_ids(const sequence_state& sequence, std::span<std::uint32_t> mask) const;
  std::int64_t legal_tokens(sequence_state& sequence, std::span<const token_id> tokens);
  void follow(sequence_state& sequence, std::span<const token_id> kept);
  bool is_end_id(const sequence_state& sequence, token_id id) const;

  // scheduler_check.cpp
  void check_phases(const std::array<std::int32_t, 5>& phases) const;
  void check_references(std::int64_t refs) const;

  // state_digest.cpp
  void describe(const sequence_state& sequence, state_digest& out) const;

  scheduler_config config_;
  scheduler_helpers helpers_;
  pipeline_shape shape_;
  std::int32_t depth_;
  bool is_paused_ = false;
  bool is_draining_ = false;

  // All sequences not gone yet. Looked up, never iterated where order could reach a message.
  std::unordered_map<seq_id, std::unique_ptr<sequence_state>> sequences_;
  admission_queue queue_;
  block_book book_;
  std::vector<sequence_state*> running_;   ///< in the order they started
  std::vector<sequence_state*> retiring_;  ///< in the order they retired
  std::int32_t ended_ = 0;
  std::int32_t preempted_ = 0;
  std::int32_t held_ = 0;  ///< and not ended
  std::uint64_t arrivals_ = 0;
  std::uint64_t started_ = 0;
  std::int64_t prefill_run_ = 0;  ///< prefill steps since the last with decode rows
  std::int64_t decode_run_ = 0;   ///< decode steps since the last with chunks

  std::vector<block_id> credit_blocks_;  ///< taken from the back
  std::vector<slot_id> credit_slots_;
  std::int64_t owed_blocks_ = 0;
  std::int64_t owed_slots_ = 0;
  std::int64_t shortfall_ = 0;     ///< blocks that the last plan lacked and the pool could give
  seq_id head_asked_{};            ///< for whom a turn was waited already
  bool waits_for_credit_ = false;  ///< the last plan, for a start
  std::int64_t claimed_ = 0;       ///< blocks that running decode rows wait for
  bool lacks_room_ = false;        ///< somebody lacked blocks in the last plan
  bool has_made_room_ = false;     ///< the last plan, having nothing to launch
  std::vector<block_move> moves_;  ///< for the next step
  struct restored_block {
    block_id block;
    step_id step;
  };
  std::vector<restored_block> restored_;  ///< from the host tier, by steps that have not settled
  std::int32_t forgets_due_ = 0;          ///< sent and not answered
  std::uint64_t index_stamp_ = 0;         ///< grows with everything the prefix index learns

  struct void_steps {
    step_id first, last;  ///< 0: none
  };
  std::array<void_steps, depth_limit> failed_{};  ///< newest failed steps, with those behind them
  std::size_t failures_ = 0;
  std::uint64_t launched_ = 0;      ///< newest step launched
  std::uint64_t settled_ = 0;       ///< newest step settled
  std::uint64_t parked_fence_ = 0;  ///< newest fence handed to the collector
  std::array<launched_step, depth_limit + 1> records_;

  std::vector<row_pick> picks_;  ///< of the plan in the making
  std::vector<decode_candidate> candidates_;
  std::vector<verify_row> sizes_;
  std::vector<token_id> block_ids_;  ///< scratch of one block
  scheduler_outbox outbox_;
  scheduler_stats totals_;
};

}  // namespace deepinfer
