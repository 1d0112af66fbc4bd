// Want of room: who waits for what comes back, and who has to give way.
#include <algorithm>

#include "runtime/base/check.hpp"
#include "runtime/core/mutant.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

std::int64_t scheduler_core::outside() const {
  return config_.num_kv_blocks - static_cast<std::int64_t>(credit_blocks_.size()) - book_.held();
}

std::int64_t scheduler_core::retiring_blocks() const {
  std::int64_t blocks = 0;
  for (const auto* it : retiring_) blocks += book_.exclusive(it->lease.blocks());
  return blocks;
}

scheduler_core::room scheduler_core::current_room() const {
  return {config_.max_num_batched_tokens,
          static_cast<std::int64_t>(credit_blocks_.size()),
          static_cast<std::int64_t>(credit_slots_.size()),
          config_.max_num_seqs - static_cast<std::int64_t>(running_.size()),
          outside(),
          (mutant(8) ? 0 : book_.promised()) + retiring_blocks()};  // 8: fences are not waited for
}

victim_candidate scheduler_core::view_of(const sequence_state& sequence) const {
  victim_candidate out;
  out.priority = -sequence.place.falling_priority;
  out.arrival = sequence.place.arrival;
  out.outputs = sequence.ledger.emitted();
  out.recompute = sequence.ledger.known();
  out.references = sequence.ledger.refs();
  out.is_held = sequence.is_held;
  if (config_.policy.victim == victim_rule::lowest_cost)
    out.blocks = book_.exclusive(sequence.lease.blocks());
  return out;
}

bool scheduler_core::is_safer(const sequence_state& a, const sequence_state& b) const {
  return goes_first(config_.policy.victim, view_of(b), view_of(a));
}

bool scheduler_core::is_picked(const sequence_state& sequence) const {
  return std::any_of(picks_.begin(), picks_.end(),
                     [&](const auto& pick) { return pick.sequence == &sequence; });
}

// A victim has emitted since it last came back, so that every life makes progress [I57]. Who lacks
// room and is the least safe of all gives way itself, unless it is alone [I56].
bool scheduler_core::may_displace(const sequence_state& victim,
                                  const sequence_state& requester) const {
  if (!victim.has_emitted && !mutant(9)) return false;  // 9: a life without progress
  if (is_picked(victim) && !mutant(32)) return false;   // 32: a row of the plan in the making
  if (requester.phase == sequence_phase::queued)
    return config_.policy.priority_preempts &&
           victim.place.falling_priority > requester.place.falling_priority;
  if (&victim != &requester) return is_safer(requester, victim);
  const bool is_last = std::none_of(running_.begin(), running_.end(), [&](const auto* it) {
    return it != &requester && is_safer(requester, *it);
  });
  return is_last && (running_.size() > 1 || mutant(31));  // 31: who is alone gives way, too
}

sequence_state* scheduler_core::next_victim(const sequence_state& requester) const {
  sequence_state* found = nullptr;
  for (auto* it : running_)
    if (may_displace(*it, requester) && (!found || is_safer(*found, *it))) found = it;
  return found;
}

// The requester lacks so many blocks (or, before it has started, a place). What the pool could give
// is asked for by name; what is promised is waited for; only then somebody gives way, and no more
// than are needed [I14]. Who waits here is served in a later turn.
void scheduler_core::want_room(std::int64_t blocks, room& left, const sequence_state& requester) {
  lacks_room_ = true;
  // A slot that is free, parked or a retiring sequence's will do: it only has to be waited for.
  const bool lacks_slot =
    left.slots <= 0 && book_.free_slots() <= 0 && book_.parked_slots() == 0 && retiring_.empty();
  const bool lacks_place =
    requester.phase == sequence_phase::queued && (left.active <= 0 || lacks_slot);
  const bool is_start = requester.phase == sequence_phase::queued;
  // Rows that run and wait come before who is to start.
  const auto spoken_for = is_start ? std::max<std::int64_t>(0, claimed_ - left.blocks) : 0;
  bool has_displaced = false;
  while (left.outside + left.coming - spoken_for < blocks || (lacks_place && !has_displaced)) {
    auto* victim = next_victim(requester);
    if (!victim) break;
    const auto gained = book_.exclusive(victim->lease.blocks());
    take_away(*victim, is_start               ? preempt_cause::priority
                       : victim == &requester ? preempt_cause::own_room
                                              : preempt_cause::room);
    left.coming += gained;
    has_displaced = has_made_room_ = true;
    if (victim == &requester) return;
  }
  // A start that cannot be had yet is no reason to give up what is cached.
  if (is_start && left.outside + left.coming - spoken_for < blocks) return;
  const auto now = std::clamp<std::int64_t>(left.outside - spoken_for, 0, blocks);
  left.outside -= now;
  shortfall_ += now;
  left.coming -= std::min(left.coming, blocks - now);
}

void scheduler_core::take_away(sequence_state& sequence, preempt_cause why) {
  leave_running(sequence);
  give_back(sequence, sequence.ledger.newest());
  sequence.ledger.restart();
  ++totals_.preemptions;
  outbox_.preempted.push_back({sequence.id(), why});
  if (config_.policy.preempt_output == preempt_rule::deliver && sequence.ledger.refs() > 0) {
    sequence.phase = sequence_phase::preempted;
    ++preempted_;
  } else {
    queue_again(sequence);
  }
}

// A new life: all ids it knows are computed again.
void scheduler_core::queue_again(sequence_state& sequence) {
  sequence.phase = sequence_phase::queued;
  sequence.fill_end = sequence.ledger.known();
  look_up_later(sequence);
  sequence.waits_first = sequence.waits_last = {};
  sequence.published.pending = sequence.published.settled = 0;
  sequence.last = {};
  sequence.closed_gate = {};
  sequence.made.steps = {};
  sequence.made.drafts.clear();
  if (mutant(14)) sequence.place.arrival = ++arrivals_;  // the place in the queue is lost
  queue_.push(sequence.place, sequence);
}

bool scheduler_core::preempt(seq_id sequence) {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end() || found->second->phase != sequence_phase::running) return false;
  take_away(*found->second, preempt_cause::order);
  return true;
}

void scheduler_core::preempt_all() {
  while (!running_.empty()) take_away(*running_.front(), preempt_cause::order);
}

// Nothing flies, nothing could be planned, and nobody will give anything back. Who is held gives
// way first. Then cached blocks that queued sequences keep for their start go, those of the last in
// the queue; then who is least safe, whatever it has emitted; and who is alone and still lacks room
// can never have it [I56].
void scheduler_core::break_stall() {
  if (in_flight() > 0 || !lacks_room_ || shortfall_ > 0 || book_.promised() > 0) return;
  // A slot is on its way, and nobody gains by giving up blocks for it.
  if (running_.empty() && credit_slots_.empty() && book_.free_slots() > 0) return;
  has_made_room_ = true;
  if (displace_held()) return;
  for (auto at = queue_.rbegin(); at != queue_.rend(); ++at)
    if (!at->second->lease.is_empty()) return forget_hit(*at->second);
  has_made_room_ = !running_.empty();
  if (running_.empty()) return;
  auto* last = running_.front();
  for (auto* it : running_)
    if (is_safer(*last, *it)) last = it;
  if (running_.size() > 1) return take_away(*last, preempt_cause::stall);
  sequence_chunk chunk;
  chunk.sequence = last->id();
  chunk.first_output = static_cast<std::int32_t>(last->ledger.emitted());
  end_with_error(*last, errc::no_blocks, "the sequence has grown beyond the KV blocks of its rank",
                 std::move(chunk));
}

bool scheduler_core::displace_held() {
  if (held_ == 0) return false;
  for (const auto& [place, sequence] : queue_)
    if (sequence->is_held && !sequence->lease.is_empty()) {
      forget_hit(*sequence);
      return true;
    }
  const auto found =
    std::find_if(running_.begin(), running_.end(), [](const auto* it) { return it->is_held; });
  if (found == running_.end()) return false;
  take_away(**found, preempt_cause::held);
  return true;
}

// Its ids alone, outputs of an earlier life included, need more blocks than there are [I56].
bool scheduler_core::ends_too_large(sequence_state& sequence) {
  if (blocks_for(start_tokens(sequence), config_.block_size) <= config_.num_kv_blocks) return false;
  sequence_chunk chunk;
  chunk.sequence = sequence.id();
  chunk.first_output = static_cast<std::int32_t>(sequence.ledger.emitted());
  end_with_error(sequence, errc::no_blocks, "the sequence needs more KV blocks than its rank has",
                 std::move(chunk));
  return true;
}

}  // namespace deepinfer
