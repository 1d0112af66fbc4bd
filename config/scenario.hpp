/// A scenario as plain data: an engine's settings, a played model and device, a script, and what
/// must be true; defaults of absent fields are the initial values here.
///
/// Times are microseconds of the virtual clock. Requests are numbered in the order of the file;
/// a submit with a count stands for several, `id.1`, `id.2`, ... Places are "FILE:LINE".
/// Made by `load_scenario` (config/scenario_load.hpp), which has checked everything that can be
/// checked without running it; settings that contradict each other are left for the engine to
/// refuse (config/scenario_engine_check.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "messages/plan.hpp"
#include "messages/request.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

/// What a runner may lack. Order and names as in messages/scenario.proto, less one.
enum class scenario_feature : std::uint8_t {
  chunked_prefill,
  mixed_steps,
  spec,
  confidence,
  prefix_cache,
  preempt,
  penalty,
  sampling,
  grammar,
  stop_strings,
  reasoning,
  logprobs,
  priority,
  graphs,
  groups,
  eplb,
  transfer,
  clients,
  window,
};

std::string_view name_of(scenario_feature feature);

// --- engine --------------------------------------------------------------------------------------

enum class scenario_draft_trim : std::uint8_t { length_limit, max_tokens };
enum class scenario_verify : std::uint8_t { fixed, confidence };
enum class scenario_victim : std::uint8_t {
  youngest,
  longest_output,
  lowest_cost,
  lowest_priority
};
enum class scenario_preempt_output : std::uint8_t { deliver, drop };
enum class scenario_step_failure : std::uint8_t { fail_rows, retry };
enum class scenario_vote_rule : std::uint8_t { quorum, points };
enum class scenario_planner : std::uint8_t { greedy, incremental };

struct scenario_policy {
  scenario_victim victim = scenario_victim::youngest;
  scenario_preempt_output preempt_output = scenario_preempt_output::deliver;
  scenario_step_failure on_step_failure = scenario_step_failure::fail_rows;
  bool priority_preempts = false;
  bool stop_in_reasoning = true;

  friend bool operator==(const scenario_policy&, const scenario_policy&) = default;
};

struct scenario_vote {
  scenario_vote_rule rule = scenario_vote_rule::quorum;
  double quorum = 1.0;
  std::int32_t max_delay = 16;
  std::int32_t min_decode_gap = 0;
  double used_share_max = 1.0;
  std::int32_t all_period = 70;
  std::int32_t any_period = 100;
  std::int64_t timeout_us = 1'000'000;

  friend bool operator==(const scenario_vote&, const scenario_vote&) = default;
};

struct scenario_eplb {
  std::int32_t window = 1000;
  std::int32_t period = 0;          ///< 0: only by verb
  std::int32_t slots_per_rank = 0;  ///< 0: experts / ranks
  std::int32_t max_moves = 0;       ///< 0: no limit
  scenario_planner planner = scenario_planner::greedy;
  double min_gain = 0;
  std::int64_t stage_timeout_us = 1'000'000;

  friend bool operator==(const scenario_eplb&, const scenario_eplb&) = default;
};

struct scenario_engine {
  std::int32_t depth = 2;
  std::int32_t ranks = 1;
  std::int32_t groups = 1;
  std::int32_t num_kv_blocks = 1024;
  std::int32_t block_size = 4;
  std::vector<std::int32_t> rank_kv_blocks;  ///< by rank; empty: all have num_kv_blocks
  std::int32_t state_slots = 0;              ///< 0: max_num_seqs * depth
  std::int32_t max_num_seqs = 8;
  std::int32_t max_num_batched_tokens = 4096;
  std::int32_t chunk_size = 0;  ///< 0: only the token budget
  std::int32_t max_model_len = 4096;
  bool prefix_cache = false;
  bool mixed_steps = false;
  std::int32_t num_drafts = 0;
  std::int32_t draft_overhang = 0;
  bool stop_mask = false;
  scenario_draft_trim draft_trim = scenario_draft_trim::length_limit;
  scenario_verify verify = scenario_verify::fixed;
  std::map<std::int32_t, std::int64_t> verify_curve_us;  ///< by query tokens
  std::vector<std::int32_t> graph_buckets;
  bool warm_up = false;
  std::int64_t watchdog_us = 1'000'000;
  std::int32_t client_credit = 64;
  scenario_policy policy;
  scenario_vote vote;
  scenario_eplb eplb;

  std::int32_t blocks_of(std::int32_t rank) const {
    const auto i = static_cast<std::size_t>(rank);
    return i < rank_kv_blocks.size() ? rank_kv_blocks[i] : num_kv_blocks;
  }
  std::int32_t slots() const { return state_slots > 0 ? state_slots : max_num_seqs * depth; }
  std::int32_t ranks_per_group() const { return groups > 0 ? ranks / groups : ranks; }

  friend bool operator==(const scenario_engine&, const scenario_engine&) = default;
};

// --- model and device ----------------------------------------------------------------------------

struct scenario_experts {
  std::int32_t layers = 0;
  std::int32_t experts = 0;
  std::int32_t top_k = 0;
  std::vector<std::vector<std::int32_t>> picks;  ///< position p uses picks[p % size]

  friend bool operator==(const scenario_experts&, const scenario_experts&) = default;
};

struct scenario_model {
  std::int32_t vocab = 1000;
  std::uint64_t seed = 1;
  std::vector<std::int32_t> accept;  ///< by decode row of a sequence, cycling
  std::vector<double> confidence;    ///< by draft
  std::optional<scenario_experts> experts;
  std::int32_t window = 0;
  std::int32_t ratio = 0;

  friend bool operator==(const scenario_model&, const scenario_model&) = default;
};

enum class scenario_phase : std::uint8_t {
  plan,
  reserve,
  vote,
  launch,
  copy_in,
  forward,
  sample,
  copy_out,
  settle,
  transfer,
  stage,
  apply,
};
enum class scenario_fault_kind : std::uint8_t { fail, hang, lose };

struct scenario_delay {
  std::optional<std::int64_t> step;  ///< absent: every one
  std::optional<std::int32_t> rank;
  scenario_phase phase = scenario_phase::forward;
  std::int64_t by_us = 0;

  friend bool operator==(const scenario_delay&, const scenario_delay&) = default;
};

struct scenario_fault {
  scenario_phase phase = scenario_phase::forward;
  std::optional<std::int64_t> step;  ///< absent: the first
  std::optional<std::int32_t> rank;
  scenario_fault_kind kind = scenario_fault_kind::fail;
  std::int32_t times = 1;

  friend bool operator==(const scenario_fault&, const scenario_fault&) = default;
};

struct scenario_device {
  std::int64_t step_time_us = 2'000;
  std::int64_t copy_in_us = 0, sample_us = 0, copy_out_us = 0;
  std::int64_t plan_time_us = 0, settle_time_us = 0, exchange_time_us = 0;
  std::int64_t jitter_us = 0;
  std::map<std::int32_t, std::int64_t> start_delay_us;  ///< by rank
  std::vector<scenario_delay> delays;
  std::vector<scenario_fault> faults;

  friend bool operator==(const scenario_device&, const scenario_device&) = default;
};

// --- script --------------------------------------------------------------------------------------

enum class scenario_event_kind : std::uint8_t {
  launched,        ///< of a request: its first row
  chunk_launched,  ///< of a request: prompt row `number`
  token,           ///< of a request: output `number` was sent to the client
  preempted,
  resumed,
  finish,
  step_launched,  ///< step `number` of `rank`
  step_settled,
  step_failed,
  paused,
  drained,
  flushed,
  eplb_planned,
  eplb_applied,
  eplb_cancelled,
  rank_dead,
};

/// Something that happens once in a run.
struct scenario_event {
  scenario_event_kind kind = scenario_event_kind::paused;
  std::int32_t request = -1;
  std::int32_t rank = 0;
  std::int64_t number = 0;

  friend bool operator==(const scenario_event&, const scenario_event&) = default;
};

/// When an entry of the script acts; for an expectation neither means at the end.
struct scenario_when {
  std::optional<std::int64_t> at_us;
  std::optional<scenario_event> after;

  friend bool operator==(const scenario_when&, const scenario_when&) = default;
};

struct scenario_grammar {
  std::int32_t ends_after = 0;   ///< 0: it never asks for the end
  std::int32_t dead_end_at = 0;  ///< 0: it always has a way on
  std::int64_t build_time_us = 0;
};

/// One request, a submit's counts expanded.
struct scenario_request {
  std::string id;
  std::string place;
  std::string prompt;  ///< name of the prompt text
  std::int32_t prompt_tokens = 0;
  std::optional<std::vector<token_id>> prompt_ids;  ///< instead of a text
  std::int32_t continues = -1;  ///< its prompt begins with prompt and output of this request
  std::int32_t max_tokens = 16;
  std::int32_t min_tokens = 0;
  std::int32_t stop_after = 0;              ///< this output is id 1; 0: none
  std::map<std::int32_t, token_id> tokens;  ///< by output, from 1
  std::vector<std::string> stop;
  std::vector<token_id> stop_ids;
  std::vector<std::int32_t> accept;  ///< empty: the model's
  std::vector<double> confidence;    ///< empty: the model's
  std::optional<std::uint64_t> sample_seed;
  bool penalty = false;
  std::optional<scenario_grammar> grammar;
  bool reasoning = false;
  bool logprobs = false;
  std::int32_t priority = 0;
  std::int32_t rank = -1;  ///< -1: routed
  std::string client;      ///< "": one that is always there
  std::optional<std::int64_t> remote_kv_us;
  bool remote_kv_fails = false;
  std::optional<std::int64_t> hand_off_us;
};

/// Submits requests [first, first + count), `every_us` apart.
struct submit_verb {
  std::int32_t first = 0;
  std::int32_t count = 1;
  std::int64_t every_us = 0;
};
struct abort_verb {
  std::vector<std::int32_t> requests;
  std::vector<std::string> unknown;  ///< ids of nobody: legal
};
struct preempt_verb {
  std::vector<std::int32_t> requests;
};
struct pause_verb {};
struct resume_verb {};
struct drain_verb {
  std::optional<std::int64_t> deadline_us;
};
struct flush_verb {
  bool running = false;
};
struct kill_verb {
  std::int32_t rank = -1;    ///< one of the three is set
  std::int32_t worker = -1;  ///< any actor of this rank
  std::string client;
};
struct consume_verb {
  std::vector<std::int32_t> requests;
  std::int32_t chunks = 0;
  std::int64_t every_us = 0;  ///< 0: only now
};
enum class scenario_message : std::uint8_t {
  submit_step,
  step_done,
  step_result,
  kv_grant,
  kv_release,
  abort,
  ballot,
  step_decision,
  staged,
  transfer_done,
  wake,
};
struct deliver_verb {
  scenario_message message = scenario_message::wake;
  std::optional<std::int64_t> step;
  std::optional<std::int32_t> rank;
  std::int32_t request = -1;
  std::int32_t copies = 1;
  std::int64_t delay_us = 0;
  bool drop = false;
  bool swap = false;
};
/// Vote and policy are whole: what the entry left out is as the engine has it from the start.
struct set_verb {
  std::optional<std::int32_t> depth;
  std::optional<scenario_vote> vote;
  std::optional<scenario_policy> policy;
};
struct rebalance_verb {
  std::int32_t rotate = 0;
};

using scenario_verb =
  std::variant<submit_verb, abort_verb, preempt_verb, pause_verb, resume_verb, drain_verb,
               flush_verb, kill_verb, consume_verb, deliver_verb, set_verb, rebalance_verb>;

/// An entry of the script that does something; one of `when`'s fields is set.
struct scenario_action {
  std::string place;
  scenario_when when;
  scenario_verb verb;
};

// --- settings of cases ---------------------------------------------------------------------------

/// Values that replace the fields of their names; the absent ones replace nothing.
struct case_settings {
  std::optional<std::int32_t> depth, ranks, num_drafts, draft_overhang, block_size, chunk_size,
    max_num_batched_tokens, num_kv_blocks;
  std::optional<bool> prefix_cache, mixed_steps;
  std::optional<scenario_verify> verify;
  std::optional<scenario_preempt_output> preempt_output;
  std::optional<scenario_victim> victim;
  std::optional<double> quorum;
  std::optional<std::int32_t> min_decode_gap;
  std::optional<std::int64_t> jitter_us, step_time_us;
  std::optional<std::vector<std::int32_t>> accept;

  friend bool operator==(const case_settings&, const case_settings&) = default;
};

struct matrix_axis {
  std::string key;
  std::vector<case_settings> values;  ///< each has this one field
  std::vector<std::string> texts;     ///< the values as written: "2", "deliver", "[2,0]"
};

// --- expectations --------------------------------------------------------------------------------

enum class scenario_finish : std::uint8_t { none, stop, length, abort, error, resource, rejected };

std::string_view name_of(scenario_finish finish);

/// What a number may be; both ends included.
struct scenario_bounds {
  std::optional<std::int64_t> min, max;
  bool is_time = false;  ///< microseconds: printed with a unit

  bool holds(std::int64_t value) const {
    return (!min || value >= *min) && (!max || value <= *max);
  }
};

struct request_form {
  std::vector<std::int32_t> requests;
  std::vector<scenario_finish> finish;  ///< any of; empty: not asked
  scenario_bounds tokens;
  std::optional<std::vector<token_id>> ids;
  std::optional<std::int64_t> within_us, first_token_within_us;
  scenario_bounds cached;
  std::optional<std::int32_t> reasoning_tokens;
  std::string code;  ///< "": not asked
};
struct metric_form {
  std::string metric;
  scenario_bounds bounds;
};
struct count_form {
  std::string count;
  std::optional<std::vector<std::int32_t>> of;
  std::optional<step_kind> kind;
  std::optional<std::int64_t> from_us, to_us;
  scenario_bounds bounds;
};
/// `name` alone, or with the requests (and for the `_after` ones the event) it is about.
struct never_form {
  std::string name;
  std::vector<std::int32_t> requests;
  std::optional<scenario_event> event;
};
struct step_form {
  std::int64_t step = 1;
  std::optional<step_kind> kind;
  std::map<std::int32_t, std::int32_t> rows;  ///< request, width; empty: not asked
  std::optional<std::int32_t> row_count, width, bucket;
};
struct order_form {
  std::vector<scenario_event> events;
  std::vector<std::string> names;  ///< of the events, as written
};
struct decisions_form {
  std::vector<step_kind> kinds;
  std::int64_t from = 1;
};
enum class scenario_equal : std::uint8_t { tokens, logprobs, collectives, placement };
struct equal_form {
  scenario_equal what = scenario_equal::tokens;
  std::vector<std::int32_t> of;  ///< requests, or ranks for collectives and placement
};
struct refused_form {
  std::string field;
};

using scenario_form = std::variant<request_form, metric_form, count_form, never_form, step_form,
                                   order_form, decisions_form, equal_form, refused_form>;

struct scenario_expectation {
  std::string place;
  scenario_when when;  ///< empty: at the end
  case_settings only_for;
  std::optional<std::int32_t> rank;
  scenario_form form;
};

// --- the whole -----------------------------------------------------------------------------------

struct scenario {
  std::string path;
  std::string name;
  std::string story;  ///< the comment of the first line
  std::vector<std::string> covers;
  std::vector<scenario_feature> needs;
  std::uint64_t seed = 1;
  scenario_engine engine;
  scenario_model model;
  scenario_device device;
  std::vector<scenario_request> requests;
  std::vector<scenario_action> actions;  ///< in the order of the file
  std::vector<scenario_expectation> expectations;
  std::vector<matrix_axis> axes;  ///< in the order of the file
  std::int32_t seeds = 1;
  std::int32_t interleavings = 1;
  std::vector<case_settings> shadows;
  std::int64_t limit_us = 60'000'000;

  /// Index of the request of this id, or -1.
  std::int32_t request_of(std::string_view id) const;
};

}  // namespace deepinfer
