// Planning: pick rows against the room there is, then commit them all. Picking changes nothing but
// scratch vectors [I09]; want of room may preempt, which is a decision of its own.
#include <algorithm>
#include <utility>

#include "runtime/base/check.hpp"
#include "runtime/core/mutant.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

bool scheduler_core::plan(step_plan& out) {
  out.clear();
  shortfall_ = 0;
  lacks_room_ = has_made_room_ = waits_for_credit_ = false;
  if (is_paused_ || in_flight() >= depth_) return false;
  picks_.clear();
  auto left = current_room();
  if (config_.mixed_steps) {
    pick_decodes(left);
    pick_prefills(left);
  } else {
    const bool wants = wants_prefill();
    if (wants) pick_prefills(left);
    if (picks_.empty() && waits_for_credit_) return false;
    if (picks_.empty()) pick_decodes(left);
    if (picks_.empty() && !wants) pick_prefills(left);
  }
  if (picks_.empty()) {
    if (!has_made_room_) break_stall();
    return false;
  }
  has_made_room_ = false;
  commit(out);
  return true;
}

bool scheduler_core::has_decodes() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const auto* it) { return !it->is_held && it->prompt_rest() == 0; });
}

bool scheduler_core::wants_prefill() const {
  if (!has_decodes()) return true;
  const auto& policy = config_.policy;
  return may_prefill(prefill_run_, decode_run_, policy.min_decode_gap, policy.max_prefill_run);
}

// A rank with so many blocks in use starts nobody, as long as what it has will give some back.
bool scheduler_core::is_full() const {
  const auto used = static_cast<double>(book_.held()) / static_cast<double>(config_.num_kv_blocks);
  const bool any_goes_on =
    std::any_of(running_.begin(), running_.end(), [](const auto* it) { return !it->is_held; });
  const bool will_change = any_goes_on || !retiring_.empty() || book_.promised() > 0;
  return used > config_.policy.used_share_max && will_change;
}

std::int32_t scheduler_core::blocks_missing(const sequence_state& sequence,
                                            std::int64_t tokens) const {
  const auto missing = blocks_for(tokens, config_.block_size) - sequence.lease.block_count();
  return missing > 0 ? static_cast<std::int32_t>(missing) : 0;
}

// All known ids; where one row computes them all, its drafter's overhang as well.
std::int64_t scheduler_core::start_tokens(const sequence_state& sequence) const {
  const auto rest = sequence.prompt_rest();
  const bool is_whole =
    rest <= chunk_width(rest, config_.chunk_size, config_.max_num_batched_tokens);
  return sequence.fill_end + (is_whole ? config_.draft_overhang : 0);
}

bool scheduler_core::pick_chunk(sequence_state& sequence, room& left) {
  const auto rest = sequence.prompt_rest();
  const auto width = chunk_width(rest, config_.chunk_size, left.tokens);
  if (width == 0) return false;
  const auto overhang = width == rest ? config_.draft_overhang : 0;
  const auto& ledger = sequence.ledger;
  const auto need = blocks_missing(
    sequence, reserve_tokens(ledger.committed(), ledger.inflight_widths() + width, overhang));
  if (need > left.blocks) {
    want_room(need - left.blocks, left, sequence);
    return false;
  }
  left.tokens -= width;
  left.blocks -= need;
  picks_.push_back({&sequence, row_kind::prefill, static_cast<std::int32_t>(width), need, 0});
  return true;
}

// A sequence starts with blocks for all its ids, so that nobody gets stuck half computed, and not
// with those that a row who runs already waits for.
bool scheduler_core::pick_start(sequence_state& sequence, room& left) {
  const auto need = blocks_missing(sequence, start_tokens(sequence));
  const bool has_place = left.active > 0 && left.slots > 0;
  const auto missing = need - std::max<std::int64_t>(0, left.blocks - claimed_);
  if (!has_place || missing > 0) {
    // The pool has it: a turn's wait, once, is better than to decode into the room it would take.
    const auto spoken_for = std::max<std::int64_t>(0, claimed_ - left.blocks);
    const bool has_slot = left.slots > 0 || book_.free_slots() > 0;
    if (left.active > 0 && has_slot && missing + spoken_for <= left.outside &&
        head_asked_ != sequence.id()) {
      head_asked_ = sequence.id();
      waits_for_credit_ = true;
    }
    want_room(std::max<std::int64_t>(0, missing), left, sequence);
    return false;
  }
  const auto width = chunk_width(sequence.prompt_rest(), config_.chunk_size, left.tokens);
  if (width == 0) return false;
  left.tokens -= width;
  left.blocks -= need;
  --left.active;
  --left.slots;
  picks_.push_back({&sequence, row_kind::prefill, static_cast<std::int32_t>(width), need, 0});
  return true;
}

// Nobody overtakes a head that lacks room, among those started or in the queue; who is held or
// waits for a grammar is passed over.
void scheduler_core::pick_prefills(room& left) {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    auto& sequence = *running_[i];
    if (sequence.prompt_rest() == 0 || sequence.is_held) continue;
    if (!pick_chunk(sequence, left)) return;
  }
  if (is_full()) return;
  for (auto at = queue_.begin(); at != queue_.end();) {
    auto& sequence = *(at++)->second;  // it may end here
    if (sequence.is_held) continue;
    if (ends_too_large(sequence) || !poll_grammar(sequence)) continue;
    if (config_.prefix_cache && sequence.lookup != lookup_state::answered) return;
    if (!pick_start(sequence, left)) return;
  }
}

std::int32_t scheduler_core::decode_width(const sequence_state& sequence) const {
  const auto& ledger = sequence.ledger;
  auto drafts = drafts_allowed(config_.num_drafts, ledger.committed(), ledger.inflight_widths(),
                               config_.max_model_len);
  if (config_.draft_trim == trim_rule::max_tokens) {
    const auto wanted = sequence.stop.limit() - (ledger.emitted() + ledger.inflight_min());
    drafts = std::min(drafts, wanted - 1);
  }
  return static_cast<std::int32_t>(1 + std::max<std::int64_t>(0, drafts));
}

std::int32_t scheduler_core::decode_need(const sequence_state& sequence, std::int32_t width) const {
  const auto& ledger = sequence.ledger;
  // Reserved without what is in flight.
  if (mutant(2)) return blocks_missing(sequence, ledger.committed() + width);
  return blocks_missing(
    sequence,
    reserve_tokens(ledger.committed(), ledger.inflight_widths() + width, config_.draft_overhang));
}

void scheduler_core::pick_decodes(room& left) {
  candidates_.clear();
  claimed_ = 0;
  for (auto* sequence : running_) {
    const auto& ledger = sequence->ledger;
    sequence->claimed = 0;
    if (sequence->prompt_rest() > 0 || sequence->closed_gate.value > 0) continue;
    if (sequence->is_held) continue;
    if (!decode_fits(ledger.committed(), ledger.inflight_widths(), config_.max_model_len)) continue;
    candidates_.push_back({sequence, ledger.newest(), sequence->started, decode_width(*sequence)});
  }
  choose_decodes(candidates_, left.tokens);
  std::int64_t blocks = 0;
  for (const auto& it : candidates_) blocks += decode_need(*it.sequence, it.width);
  if (blocks > left.blocks) return pick_decodes_by_safety(left);
  for (const auto& it : candidates_) {
    const auto need = decode_need(*it.sequence, it.width);
    left.tokens -= it.width;
    left.blocks -= need;
    picks_.push_back({it.sequence, row_kind::decode, it.width, need, 0});
  }
}

// Rows that would be taken last get blocks first. A row that lacks some waits, and keeps what there
// is: who is less safe may not take it meanwhile. Rows of the batch keep their order.
void scheduler_core::pick_decodes_by_safety(room& left) {
  const auto first_pick = static_cast<std::ptrdiff_t>(picks_.size());
  std::vector<std::size_t> order(candidates_.size());
  std::vector<victim_candidate> views;  // what a view costs is paid once a row
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    views.push_back(view_of(*candidates_[i].sequence));
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return goes_first(config_.policy.victim, views[b], views[a]);
  });
  for (const auto i : order) {
    auto& sequence = *candidates_[i].sequence;
    if (sequence.phase != sequence_phase::running) continue;  // it had to make room meanwhile
    const auto width = candidates_[i].width;
    const auto need = decode_need(sequence, width);
    if (need > left.blocks) {
      want_room(need - left.blocks, left, sequence);
      if (sequence.phase != sequence_phase::running) continue;
      claimed_ += sequence.claimed = need;
      left.blocks = 0;
      continue;
    }
    left.tokens -= width;
    left.blocks -= need;
    picks_.push_back({&sequence, row_kind::decode, width, need, i});
  }
  std::sort(picks_.begin() + first_pick, picks_.end(),
            [](const auto& a, const auto& b) { return a.order < b.order; });
}

}  // namespace deepinfer
