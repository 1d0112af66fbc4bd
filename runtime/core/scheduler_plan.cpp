// Planning: pick rows against the room there is, then commit them all. Picking changes nothing but
// scratch vectors, so a plan that finds no row has changed nothing [I09].
#include <utility>

#include "runtime/base/check.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

bool scheduler_core::plan(step_plan& out) {
  out.clear();
  if (is_paused_ || in_flight() >= depth_) return false;
  picks_.clear();
  room left{config_.max_num_batched_tokens, static_cast<std::int64_t>(credit_blocks_.size()),
            static_cast<std::int64_t>(credit_slots_.size()), book_.unpromised(),
            config_.max_num_seqs - static_cast<std::int64_t>(running_.size())};
  if (config_.mixed_steps) {
    pick_decodes(left);
    pick_prefills(left);
  } else {
    pick_prefills(left);
    if (picks_.empty()) pick_decodes(left);
  }
  if (picks_.empty()) return false;
  commit(out);
  return true;
}

std::int32_t scheduler_core::blocks_missing(const sequence_state& sequence,
                                            std::int64_t tokens) const {
  const auto missing = blocks_for(tokens, config_.block_size) - sequence.lease.block_count();
  return missing > 0 ? static_cast<std::int32_t>(missing) : 0;
}

bool scheduler_core::pick_chunk(sequence_state& sequence, room& left) {
  const auto rest = sequence.prompt_rest();
  const auto width = chunk_width(rest, config_.chunk_size, left.tokens);
  if (width == 0) return false;
  const auto overhang = width == rest ? config_.draft_overhang : 0;
  const auto& ledger = sequence.ledger;
  const auto need = blocks_missing(
    sequence, reserve_tokens(ledger.committed(), ledger.inflight_widths() + width, overhang));
  if (need > left.blocks) return false;
  left.tokens -= width;
  left.blocks -= need;
  picks_.push_back({&sequence, row_kind::prefill, static_cast<std::int32_t>(width), need});
  return true;
}

// Nobody overtakes a head that lacks room, among those started or in the queue.
void scheduler_core::pick_prefills(room& left) {
  for (auto* sequence : running_)
    if (sequence->prompt_rest() > 0 && !pick_chunk(*sequence, left)) return;
  for (const auto& [place, sequence] : queue_) {
    const auto promise =
      blocks_for(promise_tokens(sequence->prompt_tokens(), sequence->request.params->max_tokens,
                                config_.max_model_len, shape_),
                 config_.block_size);
    if (left.active == 0 || left.slots == 0 || promise > left.promises) return;
    if (!pick_chunk(*sequence, left)) return;
    --left.active;
    --left.slots;
    left.promises -= promise;
  }
}

// A row that lacks blocks waits one turn; the others go on.
void scheduler_core::pick_decodes(room& left) {
  candidates_.clear();
  for (auto* sequence : running_) {
    const auto& ledger = sequence->ledger;
    if (sequence->prompt_rest() > 0) continue;
    if (!decode_fits(ledger.committed(), ledger.inflight_widths(), config_.max_model_len)) continue;
    candidates_.push_back({sequence, ledger.newest(), sequence->started});
  }
  choose_decodes(candidates_, left.tokens);
  for (const auto& candidate : candidates_) {
    const auto& ledger = candidate.sequence->ledger;
    const auto need = blocks_missing(
      *candidate.sequence,
      reserve_tokens(ledger.committed(), ledger.inflight_widths() + 1, config_.draft_overhang));
    if (need > left.blocks) continue;
    left.tokens -= 1;
    left.blocks -= need;
    picks_.push_back({candidate.sequence, row_kind::decode, 1, need});
  }
}

void scheduler_core::commit(step_plan& out) {
  const step_id newest{launched_};
  out.step = {launched_ + 1};
  auto& record = record_of(out.step.value);
  record.step = out.step;
  record.rows.clear();
  record.epochs.clear();
  bool has_prefill = false, has_decode = false;
  for (const auto& pick : picks_) {
    (pick.kind == row_kind::prefill ? has_prefill : has_decode) = true;
    // Read before the row takes its new place.
    out.sources.push_back(
      source_of(pick.sequence->last, pick.kind, pick.sequence->ledger.epoch(), newest));
    commit_row(out, pick, record);
  }
  out.kind = has_prefill && has_decode ? step_kind::mixed
             : has_prefill             ? step_kind::prefill
                                       : step_kind::decode;
  ++launched_;
  ++totals_.steps;
}

void scheduler_core::commit_row(step_plan& out, const row_pick& pick, launched_step& record) {
  auto& sequence = *pick.sequence;
  auto& ledger = sequence.ledger;
  const bool is_first = sequence.phase == sequence_phase::queued;
  if (is_first) admit(sequence);

  out.table_begin.push_back(sequence.lease.block_count());
  for (std::int32_t i = 0; i < pick.blocks; ++i) {
    const auto block = credit_blocks_.back();
    credit_blocks_.pop_back();
    sequence.lease.append(block);
    out.blocks.push_back(block);
  }
  out.block_begin.push_back(static_cast<std::int32_t>(out.blocks.size()));
  ledger.grow_capacity(std::int64_t{pick.blocks} * config_.block_size);

  const auto position = ledger.next_position();
  const bool is_chunk = pick.kind == row_kind::prefill;
  const bool yields = !is_chunk || pick.width == sequence.prompt_rest();
  if (is_chunk) {
    const auto first = sequence.request.prompt->begin() + position;
    out.tokens.insert(out.tokens.end(), first, first + pick.width);
    totals_.prompt_tokens += static_cast<std::uint64_t>(pick.width);
  }
  out.token_begin.push_back(static_cast<std::int32_t>(out.tokens.size()));

  const auto row = out.rows();
  out.sequences.push_back(sequence.id());
  out.epochs.push_back(ledger.epoch());
  out.slots.push_back(sequence.lease.slot());
  out.kinds.push_back(pick.kind);
  out.widths.push_back(pick.width);
  out.positions.push_back(static_cast<std::int32_t>(position));
  out.yields_max.push_back(yields ? (is_chunk ? 1 : pick.width) : 0);
  out.yields_min.push_back(yields ? 1 : 0);
  if (is_first)
    out.starts.push_back({sequence.lease.slot(), sequence.id(), ledger.epoch(),
                          static_cast<std::int32_t>(sequence.prompt_tokens()),
                          static_cast<std::int32_t>(ledger.emitted()), sequence.request.params});

  ledger.launch(
    {out.step, ledger.epoch(), pick.kind, pick.width, out.yields_max.back(), out.yields_min.back()},
    yields ? config_.draft_overhang : 0);
  sequence.last = {out.step, ledger.epoch(), row, yields};
  record.rows.push_back(&sequence);
  record.epochs.push_back(ledger.epoch());
  retire_if_foreseen(sequence);
}

void scheduler_core::admit(sequence_state& sequence) {
  queue_.remove(sequence.place);
  sequence.phase = sequence_phase::running;
  sequence.started = ++started_;
  sequence.promised_blocks =
    blocks_for(promise_tokens(sequence.prompt_tokens(), sequence.request.params->max_tokens,
                              config_.max_model_len, shape_),
               config_.block_size);
  book_.promise(sequence.promised_blocks);
  sequence.lease.reserve(sequence.promised_blocks);
  sequence.lease.take_slot(credit_slots_.back());
  credit_slots_.pop_back();
  running_.push_back(&sequence);
  DI_CHECK(running_.size() <= static_cast<std::size_t>(config_.max_num_seqs),
           "{} active sequences, at most {}", running_.size(), config_.max_num_seqs);
}

// The fewest tokens in flight decide, not the most: a guess must not end a sequence early.
void scheduler_core::retire_if_foreseen(sequence_state& sequence) {
  const auto& ledger = sequence.ledger;
  if (ledger.emitted() + ledger.inflight_min() < sequence.stop.limit()) return;
  leave_running(sequence);
  sequence.phase = sequence_phase::retiring;
  ++retiring_;
}

}  // namespace deepinfer
