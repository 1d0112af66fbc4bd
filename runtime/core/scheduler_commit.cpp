// Picked rows become a launched step: columns of the plan, ledgers, tables, remap.
#include <algorithm>
#include <utility>

#include "runtime/base/check.hpp"
#include "runtime/core/mutant.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

void scheduler_core::commit(step_plan& out) {
  const step_id newest{launched_};
  out.step = {launched_ + 1};
  auto& record = record_of(out.step.value);
  record.step = out.step;
  record.rows.clear();
  record.epochs.clear();
  record.gated.clear();
  record.masks.clear();
  record.is_gate_closed = false;
  bool has_prefill = false, has_decode = false;
  for (const auto& pick : picks_) {
    (pick.kind == row_kind::prefill ? has_prefill : has_decode) = true;
    // Read before the row takes its new place.
    const auto source =
      source_of(pick.sequence->last, pick.kind, pick.sequence->ledger.epoch(), newest);
    out.sources.push_back(mutant(3) && source > 0 ? source - 1 : source);  // remap off by one
    ++(source == from_fresh  ? totals_.fresh_rows
       : source == from_slot ? totals_.slot_rows
                             : totals_.row_rows);
    commit_row(out, pick, record);
  }
  out.kind = has_prefill && has_decode ? step_kind::mixed
             : has_prefill             ? step_kind::prefill
                                       : step_kind::decode;
  prefill_run_ = has_prefill && !has_decode && has_decodes() ? prefill_run_ + 1 : 0;
  decode_run_ = has_prefill ? 0 : decode_run_ + 1;
  out.total_width = total_width(out);
  if (out.kind == step_kind::decode)
    out.bucket = bucket_for(config_.graph_buckets, out.total_width);
  record.has_moves = !moves_.empty();
  std::swap(out.moves, moves_);
  record.tokens = out.kind == step_kind::decode ? out.total_width : 0;
  ++launched_;
  ++totals_.steps;
}

void scheduler_core::append_blocks(step_plan& out, const row_pick& pick) {
  auto& lease = pick.sequence->lease;
  // The cached blocks an epoch begins with are in the lease already; the device hears of them now.
  const bool is_first = pick.sequence->last.step.value == 0;
  out.table_begin.push_back(is_first ? 0 : lease.block_count());
  if (is_first) out.blocks.insert(out.blocks.end(), lease.blocks().begin(), lease.blocks().end());
  for (std::int32_t i = 0; i < pick.blocks; ++i) {
    const auto block = credit_blocks_.back();
    credit_blocks_.pop_back();
    lease.append(block);
    book_.enter(block);
    out.blocks.push_back(block);
  }
  out.block_begin.push_back(static_cast<std::int32_t>(out.blocks.size()));
  pick.sequence->ledger.grow_capacity(std::int64_t{pick.blocks} * config_.block_size);
}

void scheduler_core::commit_row(step_plan& out, const row_pick& pick, launched_step& record) {
  auto& sequence = *pick.sequence;
  auto& ledger = sequence.ledger;
  const bool is_first = sequence.phase == sequence_phase::queued;
  if (is_first) start(sequence);
  append_blocks(out, pick);

  const auto position = ledger.next_position();
  const bool is_chunk = pick.kind == row_kind::prefill;
  const bool yields = !is_chunk || pick.width == sequence.prompt_rest();
  if (is_chunk) {
    for (auto p = position; p < position + pick.width; ++p) out.tokens.push_back(sequence.id_at(p));
    totals_.computed_tokens += static_cast<std::uint64_t>(pick.width);
  }
  out.token_begin.push_back(static_cast<std::int32_t>(out.tokens.size()));

  const auto row = out.rows();
  const bool is_gated = yields && sequence.grammar != nullptr;
  out.sequences.push_back(sequence.id());
  out.epochs.push_back(ledger.epoch());
  out.slots.push_back(sequence.lease.slot());
  out.kinds.push_back(pick.kind);
  out.widths.push_back(pick.width);
  out.positions.push_back(static_cast<std::int32_t>(position));
  out.yields_max.push_back(yields ? (is_chunk ? 1 : pick.width) : 0);
  out.yields_min.push_back(yields ? 1 : 0);
  out.gated.push_back(is_gated ? 1 : 0);
  if (is_first)
    out.starts.push_back(
      {sequence.lease.slot(), sequence.id(), ledger.epoch(),
       static_cast<std::int32_t>(sequence.prompt_tokens()),
       static_cast<std::int32_t>(ledger.emitted()), static_cast<std::int32_t>(position),
       static_cast<std::int32_t>(sequence.stop.limit()), sequence.request.params});

  ledger.launch(
    {out.step, ledger.epoch(), pick.kind, pick.width, out.yields_max.back(), out.yields_min.back()},
    yields ? config_.draft_overhang : 0);
  sequence.last = {out.step, ledger.epoch(), row, yields};
  if (is_gated) sequence.closed_gate = out.step;
  record.is_gate_closed = record.is_gate_closed || is_gated;
  record.rows.push_back(&sequence);
  record.epochs.push_back(ledger.epoch());
  record.gated.push_back(is_gated ? 1 : 0);
  record.masks.push_back(is_chunk ? 1 : pick.width);
  // Whoever is launched behind this step may read the blocks it completes.
  if (is_chunk && config_.prefix_cache)
    publish(sequence, ledger.next_position() / config_.block_size,
            mutant(7) ? step_id{} : out.step);  // published for good before it has settled
  retire_if_foreseen(sequence);
}

void scheduler_core::start(sequence_state& sequence) {
  queue_.remove(sequence.place);
  sequence.phase = sequence_phase::running;
  const auto cached = sequence.ledger.committed();
  if (sequence.started == 0) {
    sequence.cached_tokens = cached;
    totals_.prompt_tokens += static_cast<std::uint64_t>(sequence.prompt_tokens());
  }
  totals_.cached_tokens += static_cast<std::uint64_t>(cached);
  sequence.started = ++started_;
  sequence.has_emitted = false;
  sequence.last = {};
  const auto longest = std::min(sequence.prompt_tokens() + sequence.stop.limit(),
                                std::int64_t{config_.max_model_len}) +
                       shape_.margin();
  const auto most =
    std::min<std::int64_t>(blocks_for(longest, config_.block_size), config_.num_kv_blocks);
  sequence.lease.reserve(most);
  if (config_.prefix_cache) sequence.published.keys.reserve(static_cast<std::size_t>(most));
  sequence.lease.take_slot(credit_slots_.back());
  credit_slots_.pop_back();
  book_.hold_slot();
  running_.push_back(&sequence);
  DI_CHECK(running_.size() <= static_cast<std::size_t>(config_.max_num_seqs),
           "{} active sequences, at most {}", running_.size(), config_.max_num_seqs);
}

// The fewest tokens in flight decide, not the most: a guess must not end a sequence early.
void scheduler_core::retire_if_foreseen(sequence_state& sequence) {
  const auto& ledger = sequence.ledger;
  const auto coming = mutant(17) ? ledger.inflight_max() : ledger.inflight_min();
  if (ledger.emitted() + coming < sequence.stop.limit()) return;
  leave_running(sequence);
  sequence.phase = sequence_phase::retiring;
  retiring_.push_back(&sequence);
}

std::span<const float> scheduler_core::old_confidences(const sequence_state& sequence,
                                                       step_id step) const {
  // 30: as new as they come.
  const auto lag = mutant(30) ? 1 : static_cast<std::uint64_t>(std::max(2, depth_));
  const auto& made = sequence.made;
  step_id newest{};
  std::size_t at = 0;
  for (std::size_t i = 0; i < draft_history::kept; ++i) {
    if (made.steps[i].value + lag > step.value || made.steps[i] <= newest) continue;
    newest = made.steps[i];
    at = i;
  }
  if (newest.value == 0) return {};
  const auto drafts = static_cast<std::size_t>(config_.num_drafts);
  return std::span(made.confidences).subspan(at * drafts, drafts);
}

// The size may not depend on confidences of positions it decides, so it takes those that are some
// steps old; the device splits it by the newest.
std::int32_t scheduler_core::total_width(const step_plan& plan) {
  std::int32_t widest = 0;
  for (const auto width : plan.widths) widest += width;
  if (!helpers_.sizer || plan.kind != step_kind::decode) return widest;
  sizes_.clear();
  for (const auto& pick : picks_)
    sizes_.push_back({old_confidences(*pick.sequence, plan.step), pick.width});
  return std::min(widest, helpers_.sizer->total(sizes_));
}

}  // namespace deepinfer
