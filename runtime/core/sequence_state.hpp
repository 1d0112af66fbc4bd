/// One sequence as the scheduler core keeps it, from submit until no launched step names it.
///
///   queued -> running -> retiring -> ended -> gone
///     ^          |
///     +-- preempted    (its launched rows settle first, where their tokens are delivered)
/// `running` is active: it may be planned. `retiring` has launched its last useful step (its end is
/// foreseen) and is not active [I07][I40]. `ended` has had its final record; launched steps still
/// name it, so the record stays until they have settled. Any state may go straight to `ended`.
/// A plain record: the scheduler core owns and changes it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "messages/kv.hpp"
#include "messages/request.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/core/admission.hpp"
#include "runtime/core/grammar.hpp"
#include "runtime/core/lease.hpp"
#include "runtime/core/prefix_key.hpp"
#include "runtime/core/remap.hpp"
#include "runtime/core/seq_ledger.hpp"
#include "runtime/core/stop_rule.hpp"

namespace deepinfer {

enum class sequence_phase : std::uint8_t { queued, running, retiring, preempted, ended };

/// Where a sequence stands with the prefix cache: in this epoch it has not asked, waits for the
/// answer, or has its blocks.
enum class lookup_state : std::uint8_t { none, asked, answered };

/// Full blocks of a sequence and what the prefix index was told of them.
struct publish_state {
  std::vector<prefix_key> keys;  ///< of the first full blocks, as far as they are known
  std::int64_t pending = 0;      ///< blocks told of when they were launched
  std::int64_t settled = 0;      ///< blocks told of for good, or taken from the cache
};

/// Confidences of the drafts that the newest settled rows made, by the step that made them.
struct draft_history {
  static constexpr std::size_t kept = depth_limit + 1;
  std::array<step_id, kept> steps{};
  std::vector<float> confidences;  ///< [kept, drafts]
  std::vector<token_id> drafts;    ///< of the newest
  std::size_t next = 0;
};

struct sequence_state {
  sequence_state(sequence_request wanted, std::int64_t now_us, admission_queue::key key,
                 stop_rule rule)
    : request(std::move(wanted)),
      arrived_us(now_us),
      place(key),
      ledger(static_cast<std::int64_t>(request.prompt->size())),
      fill_end(ledger.known()),
      stop(std::move(rule)) {}

  sequence_request request;
  std::int64_t arrived_us;
  admission_queue::key place;  ///< in the queue; `arrival` is unique and breaks every tie
  sequence_phase phase = sequence_phase::queued;
  seq_ledger ledger;
  std::int64_t fill_end;  ///< ids known when the epoch began: chunks compute them
  stop_rule stop;
  std::vector<token_id> outputs;
  sequence_lease lease;
  std::uint64_t started = 0;  ///< how many starts were before its newest; 0: never
  last_place last;            ///< remap
  std::int64_t claimed = 0;   ///< blocks it lacked when decode rows were last picked
  bool has_emitted = false;   ///< since it last came back [I57]
  bool is_held = false;       ///< its client takes nothing: no row is planned
  std::int32_t retries = 0;   ///< failed steps in a row
  finish_reason ended_by = finish_reason::none;

  lookup_state lookup = lookup_state::none;
  std::uint64_t lookup_stamp = 0;   ///< of the index, when it was asked
  step_id waits_first, waits_last;  ///< launched steps that write its cached blocks
  publish_state published;

  draft_history made;
  std::unique_ptr<grammar_matcher> grammar;
  bool in_reasoning = false;
  std::int64_t reasoning_tokens = 0;
  std::int64_t cached_tokens = 0;  ///< of the prompt, when it first started
  step_id closed_gate;             ///< newest row whose sampling waits for masks; 0: none

  seq_id id() const { return request.sequence; }
  bool wants_grammar() const { return !request.params->grammar.empty(); }
  std::int64_t prompt_tokens() const { return ledger.prompt_tokens(); }
  /// Known ids that no launched step of this epoch has taken yet.
  std::int64_t prompt_rest() const {
    return ledger.next_position() < fill_end ? fill_end - ledger.next_position() : 0;
  }
  token_id id_at(std::int64_t position) const {
    const auto at = static_cast<std::size_t>(position);
    const auto& prompt = *request.prompt;
    return at < prompt.size() ? prompt[at] : outputs[at - prompt.size()];
  }
};

}  // namespace deepinfer
