/// One sequence as the scheduler core keeps it, from submit until no launched step names it.
///
///   queued -> running -> retiring -> ended -> gone
/// `running` is active: it may be planned. `retiring` has launched its last useful step (its end is
/// foreseen) and is not active [I07][I40]. `ended` has had its final record; launched steps still
/// name it, so the record stays until they have settled. Any state may go straight to `ended`.
/// A plain record: the scheduler core owns and changes it.
#pragma once

#include <cstdint>
#include <utility>

#include "messages/request.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/core/admission.hpp"
#include "runtime/core/lease.hpp"
#include "runtime/core/remap.hpp"
#include "runtime/core/seq_ledger.hpp"
#include "runtime/core/stop_rule.hpp"

namespace deepinfer {

enum class sequence_phase : std::uint8_t { queued, running, retiring, ended };

struct sequence_state {
  sequence_state(sequence_request wanted, std::int64_t now_us, admission_queue::key key,
                 stop_rule rule)
    : request(std::move(wanted)),
      arrived_us(now_us),
      place(key),
      ledger(static_cast<std::int64_t>(request.prompt->size())),
      stop(std::move(rule)) {}

  sequence_request request;
  std::int64_t arrived_us;
  admission_queue::key place;  ///< in the queue; `arrival` is unique and breaks every tie
  sequence_phase phase = sequence_phase::queued;
  seq_ledger ledger;
  stop_rule stop;
  sequence_lease lease;
  std::int64_t promised_blocks = 0;  ///< while it runs or retires
  std::uint64_t started = 0;         ///< how many had started before it
  last_place last;                   ///< remap

  seq_id id() const { return request.sequence; }
  std::int64_t prompt_tokens() const { return ledger.prompt_tokens(); }
  /// Prompt tokens that no launched step has taken yet.
  std::int64_t prompt_rest() const {
    return ledger.next_position() < prompt_tokens() ? prompt_tokens() - ledger.next_position() : 0;
  }
};

}  // namespace deepinfer
