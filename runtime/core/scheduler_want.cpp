// What the core asks of the allocator and tells it: credit, cached prefixes, full blocks.
#include <algorithm>
#include <utility>

#include "runtime/base/check.hpp"
#include "runtime/core/mutant.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

// Low mark: what full pipelines of all started sequences and the heads that have room would take.
// When credit falls below it, one further block for each started sequence is asked for as well, so
// that a steady batch asks once per block of tokens and not at every step.
void scheduler_core::want_credit(kv_reserve& want) const {
  const auto bs = config_.block_size;
  std::int64_t low = 0, ahead = 0, slots = 0;
  for (const auto* sequence : running_) {
    if (sequence->is_held) continue;
    const auto& ledger = sequence->ledger;
    const auto need = sequence->prompt_rest() > 0
                        ? blocks_missing(*sequence, sequence->fill_end + shape_.draft_overhang)
                        : blocks_missing(*sequence, reserve_tokens(ledger.next_position(), shape_));
    const auto longest =
      output_limit(sequence->prompt_tokens(), sequence->stop.limit(), config_.max_model_len) +
      sequence->prompt_tokens() + shape_.margin();
    const auto most =
      std::max<std::int64_t>(0, blocks_for(longest, bs) - sequence->lease.block_count());
    low += std::min<std::int64_t>(need, most);
    ahead += std::min<std::int64_t>(need + 1, most);
  }
  auto active = config_.max_num_seqs - static_cast<std::int64_t>(running_.size());
  auto free_slots = book_.free_slots();
  auto space = outside() + static_cast<std::int64_t>(credit_blocks_.size()) - low;
  for (const auto& [place, sequence] : queue_) {
    if (sequence->is_held) continue;
    const std::int64_t need = blocks_missing(*sequence, start_tokens(*sequence));
    if (active == 0 || free_slots == 0) break;
    ++slots;
    if (need > space) break;
    const auto first = std::min<std::int64_t>(sequence->stop.limit(), shape_.margin());
    low += need;
    ahead += blocks_missing(*sequence, start_tokens(*sequence) + first);
    space -= need;
    --active;
    --free_slots;
  }
  const auto held = static_cast<std::int64_t>(credit_blocks_.size()) + owed_blocks_;
  const auto held_slots = static_cast<std::int64_t>(credit_slots_.size()) + owed_slots_;
  std::int64_t blocks = held < low ? ahead - held : 0;
  blocks = std::max(blocks, shortfall_ - owed_blocks_);
  want.blocks = static_cast<std::int32_t>(blocks);
  want.evict = static_cast<std::int32_t>(shortfall_);
  want.must_answer = waits_for_credit_;
  want.slots = static_cast<std::int32_t>(std::max<std::int64_t>(0, slots - held_slots));
}

// Without a whole block before its last id there is nothing to ask, and nobody whose answer would
// wake the scheduler for it.
void scheduler_core::look_up_later(sequence_state& sequence) const {
  const bool has_none = sequence.ledger.known() <= config_.block_size;
  sequence.lookup = has_none ? lookup_state::answered : lookup_state::none;
}

// Those who could start soon, also in the place of who is held, ask once; the head asks again when
// the index has learned something since. While somebody lacks room nobody is given cached blocks to
// keep.
void scheduler_core::want_lookups(kv_reserve& want) {
  if (!config_.prefix_cache || lacks_room_) return;
  auto active = config_.max_num_seqs - static_cast<std::int64_t>(running_.size());
  for (const auto* it : running_) active += it->is_held ? 1 : 0;
  bool is_head = true;
  for (const auto& [place, sequence] : queue_) {
    if (sequence->is_held) continue;
    if (active-- <= 0) return;
    const bool may_gain = is_head && sequence->lookup == lookup_state::answered &&
                          sequence->lookup_stamp != index_stamp_ && sequence->lease.is_empty();
    is_head = false;
    if (sequence->lookup != lookup_state::none && !may_gain) continue;
    sequence->lookup_stamp = index_stamp_;
    const auto most = (sequence->ledger.known() - 1) / config_.block_size;
    if (most == 0) continue;
    sequence->lookup = lookup_state::asked;
    key_blocks(*sequence, most);
    auto& asked = want.lookups.emplace_back();
    asked.sequence = sequence->id();
    asked.epoch = sequence->ledger.epoch();
    asked.keys.assign(sequence->published.keys.begin(), sequence->published.keys.begin() + most);
    if (sequence->outputs.empty()) {
      asked.ids = sequence->request.prompt;
    } else {
      auto ids = *sequence->request.prompt;
      ids.insert(ids.end(), sequence->outputs.begin(), sequence->outputs.end());
      asked.ids = std::make_shared<const std::vector<token_id>>(std::move(ids));
    }
  }
}

void scheduler_core::key_blocks(sequence_state& sequence, std::int64_t blocks) {
  auto& keys = sequence.published.keys;
  block_ids_.resize(static_cast<std::size_t>(config_.block_size));
  while (std::ssize(keys) < blocks) {
    const auto first = std::ssize(keys) * config_.block_size;
    for (std::int64_t i = 0; i < config_.block_size; ++i)
      block_ids_[static_cast<std::size_t>(i)] = sequence.id_at(first + i);
    const auto parent = keys.empty() ? prefix_root(sequence.request.cache_salt) : keys.back();
    keys.push_back(prefix_next(parent, block_ids_));
  }
}

// Tells of the blocks up to number `blocks`: pending when their step is launched, for good when it
// has settled [I48][I50].
void scheduler_core::publish(sequence_state& sequence, std::int64_t blocks, step_id pending) {
  auto& told = pending.value > 0 ? sequence.published.pending : sequence.published.settled;
  if (told >= blocks) return;
  key_blocks(sequence, blocks);
  auto& out = outbox_.want.publish;
  for (; told < blocks; ++told) {
    out.blocks.push_back(sequence.lease.blocks()[static_cast<std::size_t>(told)]);
    out.keys.push_back(sequence.published.keys[static_cast<std::size_t>(told)]);
    out.pending.push_back(pending);
    for (std::int64_t i = 0; i < config_.block_size; ++i)
      out.ids.push_back(sequence.id_at(told * config_.block_size + i));
  }
  ++index_stamp_;
}

void scheduler_core::forget_hit(sequence_state& sequence) {
  give_back(sequence, {});
  sequence.ledger.begin_at(0);
  sequence.ledger.grow_capacity(-sequence.ledger.capacity());
  sequence.published.pending = sequence.published.settled = 0;
  sequence.waits_first = sequence.waits_last = {};
  look_up_later(sequence);
}

// Of the cached blocks a sequence takes those it can go on behind; the rest goes back.
void scheduler_core::take_hit(const prefix_hit& hit) {
  const auto found = sequences_.find(hit.sequence);
  const bool is_wanted =
    found != sequences_.end() && found->second->phase == sequence_phase::queued &&
    found->second->lookup == lookup_state::asked && found->second->ledger.epoch() == hit.epoch;
  auto first = hit.pending_first, last = hit.pending_last;
  for (const auto& it : restored_) {
    if (std::find(hit.blocks.begin(), hit.blocks.end(), it.block) == hit.blocks.end()) continue;
    first = first.value == 0 ? it.step : std::min(first, it.step);
    last = std::max(last, it.step);
  }
  // An answer may have crossed the failure of a step that was to write the blocks.
  const bool is_void =
    is_forgetting() || std::any_of(failed_.begin(), failed_.end(), [&](const auto& it) {
      return it.first.value > 0 && first <= it.last && it.first <= last;
    });
  auto kept = is_wanted && (!is_void || mutant(26)) ? std::ssize(hit.blocks) : 0;
  if (is_wanted) {
    auto& sequence = *found->second;
    const auto most = (sequence.ledger.known() - 1) / config_.block_size;
    kept = std::min<std::int64_t>(kept, most) / config_.resume_stride * config_.resume_stride;
    sequence.lookup = lookup_state::answered;
    if (kept > 0) {
      for (std::int64_t i = 0; i < kept; ++i) book_.enter(hit.blocks[static_cast<std::size_t>(i)]);
      sequence.lease.begin_with({hit.blocks.begin(), hit.blocks.begin() + kept});
      // 11: a block late, 16: a block early.
      const auto known = mutant(11) ? kept + 1 : mutant(16) ? kept - 1 : kept;
      sequence.ledger.begin_at(known * config_.block_size);
      sequence.ledger.grow_capacity(kept * config_.block_size);
      sequence.published.pending = sequence.published.settled = kept;
      sequence.waits_first = first;
      sequence.waits_last = last;
    }
  }
  if (kept == std::ssize(hit.blocks)) return;
  lease_return::parked rest{{}, {hit.blocks.begin() + kept, hit.blocks.end()}, {}};
  for (const auto block : rest.blocks) book_.enter(block);
  book_.park({}, rest.blocks, 0, {settled_});
  outbox_.leases.entries.push_back(std::move(rest));
  outbox_.leases_due = true;
}

}  // namespace deepinfer
