/// What one rank's scheduler core is told, and what it says: sizes, policies, outbox, statistics.
///
/// Sizes are fixed for the core's life; policies may change while it runs. Values are checked by
/// the core's constructor (DI_CHECK): the engine's configuration is validated long before.
#pragma once

#include <cstdint>
#include <vector>

#include "messages/kv.hpp"
#include "messages/plan.hpp"
#include "messages/request.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/core/capacity.hpp"

namespace deepinfer {

class grammar_source;
class token_texts;
class verify_sizer;

/// Whom preemption takes first. Equals: the latest arrival.
enum class victim_rule : std::uint8_t {
  youngest,        ///< the latest arrival
  longest_output,  ///< who has produced most (DeepInfer's rule)
  lowest_cost,     ///< fewest tokens to compute again per block gained, then fewest steps in flight
  lowest_priority,
};

/// What becomes of tokens that launched steps give a preempted sequence: they are delivered, and it
/// comes back when they have settled; or they are dropped and computed again.
enum class preempt_rule : std::uint8_t { deliver, drop };

/// Rows of a failed step end with an error, or are computed again.
enum class failure_rule : std::uint8_t { fail_rows, retry };

/// What cuts drafts: the length limit alone, or also what the request may still emit.
enum class trim_rule : std::uint8_t { length_limit, max_tokens };

struct scheduler_policy {
  victim_rule victim = victim_rule::youngest;
  preempt_rule preempt_output = preempt_rule::deliver;
  failure_rule on_step_failure = failure_rule::fail_rows;
  bool priority_preempts = false;  ///< may who waits displace who runs with a lower priority
  /// A rank with a larger share of its blocks in use starts nobody while rows decode.
  double used_share_max = 1.0;
  std::int32_t min_decode_gap = 0;  ///< decode steps between prefill steps, while rows decode
  /// Most prefill steps in a row while rows decode; 0: one where there is a gap, else no bound.
  std::int32_t max_prefill_run = 0;
  bool stop_in_reasoning = true;  ///< do stop strings apply before the end of reasoning
};

struct scheduler_config {
  rank_id rank;
  std::int32_t depth = 2;           ///< most steps in flight at first, 1..max_depth
  std::int32_t max_depth = 0;       ///< that may ever be set, at most depth_limit; 0: depth
  std::int32_t num_drafts = 0;      ///< d: a decode row is 1 + d wide
  std::int32_t draft_overhang = 0;  ///< w: positions past a row's own that its drafter writes
  trim_rule draft_trim = trim_rule::length_limit;
  std::int32_t max_num_seqs = 256;             ///< most active sequences; retiring ones are not
  std::int32_t max_num_batched_tokens = 8192;  ///< most tokens of one step, all row widths together
  std::int32_t chunk_size = 0;                 ///< most prompt tokens of one row; 0: budget only
  std::int32_t max_model_len = 0;              ///< prompt and output ids of a sequence together
  std::int32_t num_kv_blocks = 0;
  std::int32_t block_size = 64;  ///< tokens per block
  std::int32_t state_slots = 512;
  token_id eos = -1;              ///< -1: none
  std::vector<token_id> eos_ids;  ///< further ids that end a sequence unless it ignores eos
  token_id think_end = -1;        ///< ends reasoning; -1: none
  std::int32_t vocab_size = 0;
  token_id first_id = 0;           ///< prompts hold ids from here to vocab_size - 1
  bool mixed_steps = false;        ///< may a step hold prefill and decode rows together
  std::int32_t max_queued = 4096;  ///< most requests waiting to start
  bool prefix_cache = false;
  std::int32_t resume_stride = 1;  ///< every so many blocks of a prefix can be gone on from
  std::vector<std::int32_t> graph_buckets;  ///< decode steps are padded to the smallest that fits
  scheduler_policy policy;
};

/// What the core may ask; all outlive it, null: there is none. Without texts, requests that have
/// stop strings are refused; without grammars, those that have a grammar; without a sizer every
/// draft is verified.
struct scheduler_helpers {
  const token_texts* texts = nullptr;
  grammar_source* grammars = nullptr;
  verify_sizer* sizer = nullptr;
};

/// What the core has to say since it was last asked. Vectors keep their capacity when reused.
struct scheduler_outbox {
  chunk_batch chunks;              ///< to the gateway
  lease_return leases;             ///< to the release collector
  kv_reserve want;                 ///< to the allocator
  std::vector<sample_gate> gates;  ///< to the worker, of launched steps
  struct preemption {
    seq_id sequence;
    preempt_cause why{};
  };
  std::vector<preemption> preempted;  ///< for those who watch
  /// `leases` must be sent: it has entries, or a fence of earlier ones has settled.
  bool leases_due = false;

  bool has_chunks() const { return !chunks.chunks.empty(); }
  bool has_leases() const { return leases_due; }
  bool has_want() const {
    return want.must_answer || want.blocks > 0 || want.slots > 0 || want.evict > 0 ||
           !want.lookups.empty() || !want.publish.blocks.empty() || !want.retract.empty() ||
           want.forget;
  }
};

/// Gauges and running totals.
struct scheduler_stats {
  std::int32_t queued = 0;    ///< waiting to start or to go on
  std::int32_t running = 0;   ///< active: may be planned again
  std::int32_t retiring = 0;  ///< last step launched, not ended yet
  std::int32_t ended = 0;     ///< ended, still named by a launched step
  std::int32_t inflight_steps = 0;
  std::int64_t inflight_tokens = 0;  ///< most tokens the launched steps may yield
  std::int64_t deferred_blocks = 0;  ///< in no table, behind a fence that has not settled
  std::int64_t deferred_slots = 0;
  std::int64_t credit_blocks = 0;  ///< held here, in no table
  std::int64_t credit_slots = 0;
  std::int64_t owed_blocks = 0;  ///< asked for, not granted yet
  std::int64_t owed_slots = 0;
  std::int64_t table_blocks = 0;       ///< in the block tables of sequences, shared ones once
  std::int64_t held_slots = 0;         ///< by started sequences
  std::int64_t leases = 0;             ///< blocks and slots that launched steps may touch
  std::int64_t oldest_queued_us = -1;  ///< arrival of the head of the queue; -1: none waits

  std::uint64_t steps = 0;            ///< launched so far
  std::uint64_t prompt_tokens = 0;    ///< of prompts that have started
  std::uint64_t cached_tokens = 0;    ///< of these, served from the prefix cache
  std::uint64_t computed_tokens = 0;  ///< query tokens of chunks, repeated ones again
  std::uint64_t emitted_tokens = 0;
  std::uint64_t first_tokens = 0;      ///< sequences that have emitted one
  std::uint64_t draft_tokens = 0;      ///< verified, of rows that count
  std::uint64_t accepted_tokens = 0;   ///< drafts that were emitted
  std::uint64_t overrun_rows = 0;      ///< settled after their sequence had ended by stop or length
  std::uint64_t discarded_tokens = 0;  ///< produced and not emitted
  std::uint64_t preemptions = 0;
  std::uint64_t aborts = 0;
  std::uint64_t final_records = 0;
  std::uint64_t failed_steps = 0;
  std::uint64_t fresh_rows = 0, row_rows = 0, slot_rows = 0;  ///< remap: sources of planned rows
  std::uint64_t late_messages = 0;  ///< results and aborts that came too late and changed nothing

  friend bool operator==(const scheduler_stats&, const scheduler_stats&) = default;
};

}  // namespace deepinfer
