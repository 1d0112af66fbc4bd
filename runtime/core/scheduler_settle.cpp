// Settling: results of the oldest step become tokens, ends, published and freed blocks.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/check.hpp"
#include "runtime/core/mutant.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

namespace {

/// Failed steps in a row after which a sequence is given up, where they are repeated.
constexpr std::int32_t most_retries = 8;

/// The row's KV may be as wrong as its logits are. (Masks say nothing about KV.)
bool is_doubtful(row_error error) {
  return error == row_error::bad_logits || error == row_error::bad_history;
}

errc code_of(row_error error, bool has_grammar) {
  if (error != row_error::no_candidate) return errc::device_failed;
  return has_grammar ? errc::grammar_failed : errc::invalid_argument;
}

const char* what_of(row_error error) {
  switch (error) {
  case row_error::none: break;
  case row_error::bad_logits:
    return "the logits, with the request's logit_bias and penalties, are not finite";
  case row_error::no_candidate:
    return "no id is left to choose: stop ids before min_tokens and the grammar mask all of them";
  case row_error::bad_history: return "an id before the token is not of the vocabulary";
  }
  return "";
}

}  // namespace

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
  DI_CHECK(failed || result.row_errors.empty() || result.row_errors.size() == record.rows.size(),
           "step {} returned {} row errors for {} rows", result.step.value,
           result.row_errors.size(), record.rows.size());
  // From here on the step has settled: what is given back below may leave at once.
  settled_ = result.step.value;
  book_.settle(result.step);
  if (parked_fence_ >= settled_) outbox_.leases_due = true;
  if (failed) ++totals_.failed_steps;
  bool has_void_names = failed;
  for (std::size_t i = 0; i < record.rows.size(); ++i) {
    auto& sequence = *record.rows[i];
    if (failed) {
      fail_row(sequence, result, record.epochs[i]);
      continue;
    }
    DI_CHECK(result.sequences[i] == sequence.id(), "row {} of step {} is sequence {}, not {}", i,
             result.step.value, sequence.id().value, result.sequences[i].value);
    DI_CHECK(result.epochs[i] == record.epochs[i], "row {} of step {} is of epoch {}, not {}", i,
             result.step.value, record.epochs[i], result.epochs[i]);
    const auto row = static_cast<std::int32_t>(i);
    // Only chunks are named before they have settled.
    if (is_doubtful(result.error_of(row)))
      has_void_names = has_void_names || sequence.ledger.row(0).kind == row_kind::prefill;
    settle_row(sequence, result, row, record.epochs[i]);
  }
  if (!failed && record.tokens > 0) observe_times(result, record);
  record.rows.clear();
  record.is_gate_closed = false;
  if (has_void_names) fail_dependents(result.step, failed && record.has_moves);
  std::erase_if(restored_, [&](const auto& it) { return it.step <= result.step; });
}

void scheduler_core::observe_times(const step_result& result, const launched_step& record) {
  if (!helpers_.sizer) return;
  const auto us = [&](step_phase phase) {
    const auto i = static_cast<std::size_t>(phase);
    return static_cast<double>(result.times.end_ns[i] - result.times.begin_ns[i]) / 1000.0;
  };
  helpers_.sizer->observe(static_cast<std::int32_t>(record.rows.size()), record.tokens,
                          us(step_phase::forward), us(step_phase::sample));
}

void scheduler_core::settle_ended_row(sequence_state& sequence, std::int64_t tokens) {
  sequence.ledger.drop({settled_});
  if (sequence.ended_by == finish_reason::stop || sequence.ended_by == finish_reason::length) {
    ++totals_.overrun_rows;
    totals_.discarded_tokens += static_cast<std::uint64_t>(tokens);
  }
  erase_if_unreferenced(sequence);
}

void scheduler_core::settle_row(sequence_state& sequence, const step_result& result,
                                std::int32_t row, std::uint32_t epoch) {
  const auto tokens = result.row_tokens(row);
  const auto given = static_cast<std::int64_t>(tokens.size());
  const auto launched = sequence.ledger.row(0);
  DI_CHECK(launched.step == result.step, "step {} settles sequence {}, whose oldest is {}",
           result.step.value, sequence.id().value, launched.step.value);
  DI_CHECK(given <= launched.yields_max, "row {} of step {} gave {} tokens, expected {}..{}", row,
           result.step.value, given, launched.yields_min, launched.yields_max);
  // 21: what an over-run row gives is told.
  if (sequence.phase == sequence_phase::ended && !mutant(21))
    return settle_ended_row(sequence, given);
  // No check of the epoch.
  const bool is_stale = !mutant(4) && epoch != sequence.ledger.epoch();
  // Of an earlier life: its tokens are computed again, unless they are to be delivered.
  if (is_stale && !is_live_row(sequence, epoch)) return sequence.ledger.drop(result.step);
  DI_CHECK(launched.yields_min <= given || result.error_of(row) != row_error::none,
           "row {} of step {} gave {} tokens, expected {}..{}", row, result.step.value, given,
           launched.yields_min, launched.yields_max);

  const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                [this](token_id id) { return id < 0 || id >= config_.vocab_size; });
  if (bad == tokens.end()) return keep_tokens(sequence, result, row, launched, is_stale);
  sequence.ledger.drop(result.step);
  sequence_chunk chunk;
  chunk.sequence = sequence.id();
  chunk.first_output = static_cast<std::int32_t>(sequence.ledger.emitted());
  end_with_error(sequence, errc::device_failed,
                 fmt::format("step {} gave token id {}, expected 0..{}", result.step.value, *bad,
                             config_.vocab_size - 1),
                 std::move(chunk));
}

void scheduler_core::keep_tokens(sequence_state& sequence, const step_result& result,
                                 std::int32_t row, const ledger_row& launched, bool is_stale) {
  const auto tokens = result.row_tokens(row);
  const auto given = static_cast<std::int64_t>(tokens.size());
  const auto error = result.error_of(row);
  const auto legal = static_cast<std::size_t>(legal_tokens(sequence, tokens));
  auto verdict = sequence.stop.check(tokens.first(legal));
  if (mutant(29)) verdict.kept = static_cast<std::int32_t>(legal);  // what follows a stop is kept
  const auto kept = tokens.first(static_cast<std::size_t>(verdict.kept));
  follow(sequence, kept);

  sequence_chunk chunk;
  chunk.sequence = sequence.id();
  chunk.first_output = static_cast<std::int32_t>(sequence.ledger.emitted());
  chunk.tokens.assign(kept.begin(), kept.end());
  if (sequence.request.params->logprobs >= 0 && !result.logprobs.empty() && verdict.kept > 0) {
    const auto first = result.logprobs.begin() + result.token_begin[static_cast<std::size_t>(row)];
    chunk.logprobs.assign(first, first + verdict.kept);
  }
  if (verdict.kept > 0 && sequence.outputs.empty()) ++totals_.first_tokens;
  sequence.outputs.insert(sequence.outputs.end(), kept.begin(), kept.end());
  sequence.ledger.settle(result.step, verdict.kept);
  if (is_stale) sequence.ledger.learn(verdict.kept);
  sequence.has_emitted = sequence.has_emitted || verdict.kept > 0;
  sequence.retries = 0;
  count_tokens(launched, result, row, verdict.kept, given);
  if (verdict.reason == finish_reason::none && legal < tokens.size())
    return end_with_error(sequence, errc::grammar_failed,
                          "the grammar of the request leaves no token here", std::move(chunk));
  // The tokens before the failure are as good as any. It would only come again: no policy repeats
  // it.
  if (verdict.reason == finish_reason::none && error != row_error::none)
    return end_with_error(sequence, code_of(error, sequence.grammar != nullptr),
                          fmt::format("step {}: {}", result.step.value, what_of(error)),
                          std::move(chunk));
  if (verdict.reason == finish_reason::none) {
    if (verdict.kept > 0) outbox_.chunks.chunks.push_back(std::move(chunk));
    return go_on(sequence, result, row);
  }
  totals_.discarded_tokens += static_cast<std::uint64_t>(given - verdict.kept);
  if (config_.prefix_cache && !is_stale)
    publish(sequence, sequence.ledger.committed() / config_.block_size, {});
  sequence_finish finish;
  finish.reason = verdict.reason;
  finish.stop_detail = std::move(verdict.detail);
  finish.stop_bytes = verdict.stop_bytes;
  end(sequence, std::move(finish), std::move(chunk));
}

void scheduler_core::go_on(sequence_state& sequence, const step_result& result, std::int32_t row) {
  remember_drafts(sequence, result, row);
  if (sequence.phase == sequence_phase::preempted) {
    if (sequence.ledger.refs() > 0) return;
    --preempted_;
    return queue_again(sequence);
  }
  return_surplus(sequence);
  // 28: the last known id has no KV yet.
  const auto full = mutant(28) ? sequence.ledger.known() : sequence.ledger.committed();
  if (config_.prefix_cache) publish(sequence, full / config_.block_size, {});
  // Accepted drafts may have brought the end into sight.
  if (!mutant(6) && sequence.phase == sequence_phase::running) retire_if_foreseen(sequence);
}

void scheduler_core::count_tokens(const ledger_row& launched, const step_result& result,
                                  std::int32_t row, std::int64_t kept, std::int64_t given) {
  totals_.emitted_tokens += static_cast<std::uint64_t>(kept);
  if (launched.kind == row_kind::prefill) return;
  const auto width =
    result.widths.empty() ? launched.width : result.widths[static_cast<std::size_t>(row)];
  totals_.draft_tokens += static_cast<std::uint64_t>(std::max(0, width - 1));
  // The last token of a row is no draft; a row that failed lacks it.
  const auto accepted = result.error_of(row) == row_error::none ? given - 1 : given;
  totals_.accepted_tokens += static_cast<std::uint64_t>(std::min(kept, accepted));
}

void scheduler_core::remember_drafts(sequence_state& sequence, const step_result& result,
                                     std::int32_t row) {
  const auto drafts = static_cast<std::size_t>(result.drafts_per_row);
  if (drafts == 0 || result.row_tokens(row).empty()) return;
  auto& made = sequence.made;
  const auto from = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * drafts);
  const auto count = static_cast<std::ptrdiff_t>(drafts);
  made.drafts.assign(result.drafts.begin() + from, result.drafts.begin() + from + count);
  if (result.confidences.empty()) return;
  made.steps[made.next] = result.step;
  std::copy_n(result.confidences.begin() + from, count,
              made.confidences.begin() + static_cast<std::ptrdiff_t>(made.next) * count);
  made.next = (made.next + 1) % draft_history::kept;
}

void scheduler_core::fail_row(sequence_state& sequence, const step_result& result,
                              std::uint32_t epoch) {
  if (sequence.phase == sequence_phase::ended) return settle_ended_row(sequence, 0);
  sequence.ledger.drop(result.step);
  if (!is_live_row(sequence, epoch)) return;
  // Its tokens are lost, and those of later rows would leave a gap.
  if (sequence.phase == sequence_phase::preempted) return deliver_no_more(sequence);
  const bool may_repeat = config_.policy.on_step_failure == failure_rule::retry;
  if (may_repeat && ++sequence.retries <= most_retries) return compute_again(sequence);
  sequence_chunk chunk;
  chunk.sequence = sequence.id();
  chunk.first_output = static_cast<std::int32_t>(sequence.ledger.emitted());
  end_with_error(sequence, errc::device_failed,
                 fmt::format("step {}, which held the sequence, failed: {}{}{}", result.step.value,
                             name_of(result.code), *result.what ? ", " : "", result.what),
                 std::move(chunk));
}

// What a preempted sequence still has in flight is computed again instead.
void scheduler_core::deliver_no_more(sequence_state& sequence) {
  --preempted_;
  queue_again(sequence);
}

// Later launched rows of the sequence stand on what was never computed: they are stale as well.
void scheduler_core::compute_again(sequence_state& sequence) {
  if (sequence.phase == sequence_phase::retiring)
    std::erase(retiring_, &sequence);
  else
    leave_running(sequence);
  give_back(sequence, sequence.ledger.newest());
  sequence.ledger.restart();
  queue_again(sequence);
}

// Who was to read blocks that the failed step, or a failed row of it, should have written has
// nothing to stand on. Rows that have settled well are confirmed in the same message and keep their
// names. Steps launched behind it may have read them before: what those were to write is as void,
// and who waits for it starts again. What a failed step moved between device and host tier is
// unknown, and may have been moved on, or be about to be: failures are too rare to follow it, so
// all names go.
void scheduler_core::fail_dependents(step_id failed, bool has_moves) {
  if (!config_.prefix_cache) return;
  const step_id last{has_moves ? launched_ + 1 : launched_};
  if (has_moves) {
    outbox_.want.forget = true;
    moves_.clear();
  }
  for (auto step = failed.value; step <= launched_; ++step) {
    if (mutant(19)) break;                            // a failed step keeps its names
    if (mutant(25) && step > failed.value) continue;  // those behind it keep theirs
    outbox_.want.retract.push_back({step});
  }
  failed_[failures_++ % failed_.size()] = {failed, last};
  ++index_stamp_;
  for (auto* sequence : by_arrival([](const auto& it) { return it.waits_last.value > 0; })) {
    if (last < sequence->waits_first || sequence->waits_last < failed) continue;
    if (sequence->phase == sequence_phase::queued)
      forget_hit(*sequence);
    else if (sequence->phase == sequence_phase::preempted)
      deliver_no_more(*sequence);
    else if (sequence->phase != sequence_phase::ended)
      compute_again(*sequence);
  }
}

// Only the table gets shorter; the ledger's rows keep what they may write.
void scheduler_core::return_surplus(sequence_state& sequence) {
  auto& ledger = sequence.ledger;
  const auto keep = blocks_for(
    deepinfer::keep_tokens(ledger.committed(), ledger.inflight_widths(), sequence.fill_end, shape_),
    config_.block_size);
  if (sequence.lease.block_count() <= keep) return;
  auto entry = sequence.lease.park_tail(ledger.newest(), static_cast<std::int32_t>(keep));
  ledger.shrink_capacity(static_cast<std::int64_t>(entry.blocks.size()) * config_.block_size,
                         config_.draft_overhang);
  book_.park(entry.fence, entry.blocks, 0, {settled_});
  parked_fence_ = std::max(parked_fence_, entry.fence.value);
  if (mutant(10)) outbox_.leases.entries.push_back(entry);  // a tail returned twice
  outbox_.leases.entries.push_back(std::move(entry));
  outbox_.leases_due = true;
}

}  // namespace deepinfer
