// Settling: results of the oldest step become tokens, ends, freed blocks; and what the next plans
// will want.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/check.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

void scheduler_core::settle(const step_result& result) {
  if (result.step.value <= settled_) {  // settled before, or forgotten with a lost rank
    ++totals_.late_messages;
    return;
  }
  DI_CHECK(result.step.value == settled_ + 1, "step {} settles, the oldest is {}",
           result.step.value, settled_ + 1);
  DI_CHECK(settled_ < launched_, "step {} settles, only {} were launched", result.step.value,
           launched_);
  auto& record = record_of(result.step.value);
  DI_CHECK(record.step == result.step, "record of step {} holds step {}", result.step.value,
           record.step.value);
  const bool failed = result.code != errc::ok;
  DI_CHECK(failed || result.sequences.size() == record.rows.size(),
           "step {} returned {} rows, it was launched with {}", result.step.value,
           result.sequences.size(), record.rows.size());
  DI_CHECK(failed || result.token_begin.size() == record.rows.size() + 1,
           "step {} returned {} row offsets for {} rows", result.step.value,
           result.token_begin.size(), record.rows.size());
  // From here on the step has settled: what is given back below may leave at once.
  settled_ = result.step.value;
  book_.settle(result.step);
  if (parked_fence_ >= settled_) outbox_.leases_due = true;
  if (failed) ++totals_.failed_steps;
  for (std::size_t i = 0; i < record.rows.size(); ++i) {
    auto& sequence = *record.rows[i];
    if (failed) {
      fail_row(sequence, result);
      continue;
    }
    DI_CHECK(result.sequences[i] == sequence.id(), "row {} of step {} is sequence {}, not {}", i,
             result.step.value, sequence.id().value, result.sequences[i].value);
    DI_CHECK(result.epochs[i] == record.epochs[i], "row {} of step {} is of epoch {}, not {}", i,
             result.step.value, record.epochs[i], result.epochs[i]);
    settle_row(sequence, result, static_cast<std::int32_t>(i));
  }
  record.rows.clear();
  record.epochs.clear();
}

void scheduler_core::settle_ended_row(sequence_state& sequence, std::int64_t tokens) {
  sequence.ledger.drop({settled_});
  ++totals_.overrun_rows;
  totals_.discarded_tokens += static_cast<std::uint64_t>(tokens);
  erase_if_unreferenced(sequence);
}

void scheduler_core::settle_row(sequence_state& sequence, const step_result& result,
                                std::int32_t row) {
  const auto tokens = result.row_tokens(row);
  const auto given = static_cast<std::int64_t>(tokens.size());
  const auto& launched = sequence.ledger.row(0);
  DI_CHECK(launched.step == result.step, "step {} settles sequence {}, whose oldest is {}",
           result.step.value, sequence.id().value, launched.step.value);
  DI_CHECK(launched.yields_min <= given && given <= launched.yields_max,
           "row {} of step {} gave {} tokens, expected {}..{}", row, result.step.value, given,
           launched.yields_min, launched.yields_max);
  if (sequence.phase == sequence_phase::ended) return settle_ended_row(sequence, given);

  const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                [this](token_id id) { return id < 0 || id >= config_.vocab_size; });
  if (bad != tokens.end()) {
    sequence.ledger.drop(result.step);
    sequence_chunk chunk;
    chunk.sequence = sequence.id();
    chunk.first_output = static_cast<std::int32_t>(sequence.ledger.emitted());
    sequence_finish finish;
    finish.reason = finish_reason::error;
    finish.code = errc::device_failed;
    finish.message = fmt::format("step {} gave token id {}, expected 0..{}", result.step.value,
                                 *bad, config_.vocab_size - 1);
    return end(sequence, std::move(finish), std::move(chunk));
  }

  auto verdict = sequence.stop.check(tokens);
  sequence_chunk chunk;
  chunk.sequence = sequence.id();
  chunk.first_output = static_cast<std::int32_t>(sequence.ledger.emitted());
  chunk.tokens.assign(tokens.begin(), tokens.begin() + verdict.kept);
  if (sequence.request.params->logprobs >= 0 && !result.logprobs.empty() && verdict.kept > 0) {
    const auto first = result.logprobs.begin() + result.token_begin[static_cast<std::size_t>(row)];
    chunk.logprobs.assign(first, first + verdict.kept);
  }
  sequence.ledger.settle(result.step, verdict.kept);
  totals_.emitted_tokens += static_cast<std::uint64_t>(verdict.kept);
  totals_.discarded_tokens += static_cast<std::uint64_t>(given - verdict.kept);
  if (verdict.reason == finish_reason::none) {
    if (verdict.kept > 0) outbox_.chunks.chunks.push_back(std::move(chunk));
    return return_surplus(sequence);
  }
  sequence_finish finish;
  finish.reason = verdict.reason;
  finish.stop_detail = std::move(verdict.detail);
  finish.stop_bytes = verdict.stop_bytes;
  end(sequence, std::move(finish), std::move(chunk));
}

void scheduler_core::fail_row(sequence_state& sequence, const step_result& result) {
  if (sequence.phase == sequence_phase::ended) return settle_ended_row(sequence, 0);
  sequence.ledger.drop(result.step);
  sequence_chunk chunk;
  chunk.sequence = sequence.id();
  chunk.first_output = static_cast<std::int32_t>(sequence.ledger.emitted());
  sequence_finish finish;
  finish.reason = finish_reason::error;
  finish.code = errc::device_failed;
  finish.message =
    fmt::format("step {}, which held the sequence, failed: {}{}{}", result.step.value,
                name_of(result.code), *result.what ? ", " : "", result.what);
  end(sequence, std::move(finish), std::move(chunk));
}

// Blocks stay in the promise of a sequence that lives; only the table gets shorter.
void scheduler_core::return_surplus(sequence_state& sequence) {
  auto& ledger = sequence.ledger;
  const auto keep = blocks_for(
    keep_tokens(ledger.committed(), ledger.inflight_widths(), sequence.prompt_tokens(), shape_),
    config_.block_size);
  if (sequence.lease.block_count() <= keep) return;
  auto entry = sequence.lease.park_tail(ledger.newest(), static_cast<std::int32_t>(keep));
  ledger.shrink_capacity(static_cast<std::int64_t>(entry.blocks.size()) * config_.block_size,
                         config_.draft_overhang);
  park(std::move(entry));
}

// Low mark: what full pipelines of all started sequences and the heads that have room would take.
// When credit falls below it, one further block for each started sequence is asked for as well, so
// that a steady batch asks once per block of tokens and not at every step.
kv_reserve scheduler_core::next_want() const {
  const auto bs = config_.block_size;
  std::int64_t low = 0, ahead = 0, slots = 0;
  for (const auto* sequence : running_) {
    const auto& ledger = sequence->ledger;
    const auto need = sequence->prompt_rest() > 0
                        ? blocks_missing(*sequence, sequence->prompt_tokens() + shape_.margin())
                        : blocks_missing(*sequence, reserve_tokens(ledger.next_position(), shape_));
    const auto most = sequence->promised_blocks - sequence->lease.block_count();
    low += std::min<std::int64_t>(need, most);
    ahead += std::min<std::int64_t>(need + 1, most);
  }
  auto active = config_.max_num_seqs - static_cast<std::int64_t>(running_.size());
  auto promises = book_.unpromised();
  auto free_slots = book_.free_slots();
  for (const auto& [place, sequence] : queue_) {
    const auto promise =
      blocks_for(promise_tokens(sequence->prompt_tokens(), sequence->request.params->max_tokens,
                                config_.max_model_len, shape_),
                 bs);
    if (active == 0 || free_slots == 0 || promise > promises) break;
    const auto need = blocks_for(sequence->prompt_tokens() + shape_.margin(), bs);
    low += std::min(need, promise);
    ahead += std::min(need, promise);
    ++slots;
    --active;
    --free_slots;
    promises -= promise;
  }
  const auto held = static_cast<std::int64_t>(credit_blocks_.size()) + owed_blocks_;
  const auto held_slots = static_cast<std::int64_t>(credit_slots_.size()) + owed_slots_;
  kv_reserve want;
  want.rank = config_.rank;
  if (held < low) want.blocks = static_cast<std::int32_t>(ahead - held);
  if (held_slots < slots) want.slots = static_cast<std::int32_t>(slots - held_slots);
  return want;
}

}  // namespace deepinfer
