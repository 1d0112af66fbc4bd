#include "runtime/model/hash_state.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.hpp"

namespace deepinfer {

hash_state::hash_state(const runner_config& config, const hash_model_config& model, canary_log* log)
  : config_(config),
    model_(model),
    log_(log),
    kv_(config, model, log),
    experts_(hash_experts_of(model.experts)) {
  hash_check_experts(model.experts);
  DI_CHECK(model.vocab > hash_first_word, "a vocabulary of {} has no words", model.vocab);
  DI_CHECK(config.state_slots > 0, "{} slots", config.state_slots);
  DI_CHECK(config.depth <= static_cast<std::int32_t>(hash_slot::steps_remembered), "depth {}",
           config.depth);
  DI_CHECK(model.ratio == 0 || config.block_size % model.ratio == 0,
           "blocks of {} tokens, compressed entries of {}", config.block_size, model.ratio);
  table_stride_ = config.num_kv_blocks;
  if (model.window > 0)
    ring_size_ = model.window + 3 * (1 + config.num_drafts) + config.draft_overhang;
  slots_.resize(static_cast<std::size_t>(config.state_slots));
  for (auto& it : slots_) {
    it.drafts.resize(static_cast<std::size_t>(config.num_drafts));
    it.confidences.resize(static_cast<std::size_t>(config.num_drafts));
  }
  tables_.assign(slots_.size() * static_cast<std::size_t>(table_stride_), trap_block);
  rings_.assign(slots_.size() * static_cast<std::size_t>(ring_size_), 0);
}

void hash_state::reset() {
  kv_.reset();
  for (std::size_t i = 0; i < slots_.size(); ++i) clear_slot(slot_id{static_cast<std::int32_t>(i)});
  written_ends_.clear();
}

// As if nobody had ever been there; vectors keep their memory.
void hash_state::clear_slot(slot_id id) {
  auto& it = slot(id);
  for (std::int32_t i = 0; i < it.table_blocks; ++i) table_at(id, i) = trap_block;
  hash_slot fresh;
  fresh.drafts = std::move(it.drafts);
  fresh.confidences = std::move(it.confidences);
  it = std::move(fresh);
}

void hash_state::start(const hash_start& what) {
  clear_slot(what.slot);
  auto& it = slot(what.slot);
  it.is_live = true;
  it.sequence = what.sequence;
  it.epoch = what.epoch;
  it.length = what.position;
  it.prompt_tokens = what.prompt_tokens;
  it.known_outputs = what.outputs;
  it.output_limit = what.output_limit;
  it.sampling = what.sampling;
  it.script = what.script;
  it.history = hash_history::at_start(it.sampling);
  if (it.script && !it.script->prompt.empty())
    it.truth = std::make_unique<hash_sequence>(model_, *it.script, it.sampling);
  if (model_.keeps_written_ends) it.written_end = &written_ends_[what.sequence];
}

void hash_state::append_blocks(step_id step, slot_id slot_of_row, std::int32_t first_ordinal,
                               std::span<const block_id> blocks, std::int32_t hits) {
  auto& it = slot(slot_of_row);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto ordinal = first_ordinal + static_cast<std::int32_t>(i);
    const auto block = blocks[i];
    if (!kv_.is_block(block) || ordinal < 0 || ordinal >= table_stride_) {
      log_->add("write_trap_block",
                fmt::format("step {}: block {} for ordinal {} of slot {}, there are {} blocks",
                            step.value, block.value, ordinal, slot_of_row.value,
                            config_.num_kv_blocks));
      continue;
    }
    table_at(slot_of_row, ordinal) = block.value;
    it.table_blocks = std::max(it.table_blocks, ordinal + 1);
    if (ordinal < hits) {
      kv_.lease(block).is_shared = true;
      // The host will hear of the failure. If it does not start the sequence again, what this row
      // and those behind it give are wrong tokens.
      it.is_stale = it.is_stale || kv_.has_hole(block);
    } else {
      kv_.take(block, {slot_of_row, it.sequence, it.epoch, false});
    }
  }
}

void hash_state::resume(step_id step, slot_id id) {
  auto& it = slot(id);
  const auto end = it.length;
  if (it.is_stale) return;
  for (auto p = it.prompt_tokens; p < end; ++p) {
    const auto* entry = find(id, p);
    if (entry) it.history.add(entry->id);
  }
  const auto block = block_of(id, end - 1);
  const auto found = kv_.is_block(block) ? kv_.resume_point(block).end : -1;
  if (end % config_.block_size != 0 || found != end) {
    log_->add("state_mismatch",
              fmt::format("{}: goes on behind its prefix, block {} can be resumed at {}",
                          place(step, id, end), block.value, found));
    return;
  }
  it.partial = kv_.resume_point(block).partial;
  const auto window = kv_.resume_window(block);
  const auto first = std::max(0, end - model_.window);
  for (auto p = first; p < end && model_.window > 0; ++p)
    ring_at(id, p) = window[static_cast<std::size_t>(p - first)];
}

void hash_state::save_resume_point(slot_id id, std::int32_t end, const hash_cursor& cursor) {
  const auto block = block_of(id, end - 1);
  kv_.resume_point(block) = {end, cursor.partial};
  const auto window = kv_.resume_window(block);
  const auto first = std::max(0, end - model_.window);
  for (auto p = first; p < end && model_.window > 0; ++p)
    window[static_cast<std::size_t>(p - first)] = ring_at(id, p);
}

block_id hash_state::block_of(slot_id id, std::int32_t position) {
  const auto ordinal = position / config_.block_size;
  if (position < 0 || ordinal >= slot(id).table_blocks) return {trap_block};
  return {table_at(id, ordinal)};
}

hash_entry* hash_state::find(slot_id id, std::int32_t position) {
  const auto block = block_of(id, position);
  if (!kv_.is_block(block)) return nullptr;
  return &kv_.entries(block)[static_cast<std::size_t>(position % config_.block_size)];
}

std::string hash_state::place(step_id step, slot_id id, std::int32_t position) {
  return fmt::format("step {}, sequence {}, slot {}, position {}", step.value,
                     slot(id).sequence.value, id.value, position);
}

// Whether the entry is what position `position` must hold, `before` being the chain of its
// neighbour.
bool hash_state::check_entry(step_id step, slot_id id, std::int32_t position,
                             const hash_entry* entry, std::uint64_t before) {
  const auto where = [&] { return place(step, id, position); };
  if (!entry) {
    log_->add("canary_mismatch", where() + ": reads the trap block");
    return false;
  }
  const auto writer = entry->writer.value;
  if (entry->state == hash_entry_state::freed) {
    log_->add("read_freed_block",
              fmt::format("{}: written by step {} and freed since", where(), writer));
    return false;
  }
  if (entry->state == hash_entry_state::unwritten) {
    log_->add("read_beyond_length", where() + ": never written");
    return false;
  }
  if (entry->state == hash_entry_state::overhang) {
    log_->add("read_beyond_length",
              fmt::format("{}: written by the drafter of step {}, past its row", where(), writer));
    return false;
  }
  if (entry->position != position) {
    log_->add("canary_mismatch",
              fmt::format("{}: holds position {} of step {}", where(), entry->position, writer));
    return false;
  }
  auto* truth = slot(id).truth.get();
  const auto expected =
    truth ? truth->chain(position) : hash_chain_at(model_, experts_, before, position, entry->id);
  if (entry->chain == expected) return true;
  log_->add("canary_mismatch", fmt::format("{}: chain {:#x} with id {} of step {}, expected {:#x}",
                                           where(), entry->chain, entry->id, writer, expected));
  return false;
}

void hash_state::check_ring(step_id step, slot_id id, std::int32_t position, std::uint64_t chain) {
  const auto found = ring_at(id, position);
  if (found == chain) return;
  log_->add("state_mismatch", fmt::format("{}: the ring has {:#x}, the block {:#x}",
                                          place(step, id, position), found, chain));
}

// `from` is at the edge of a block, so of a group.
hash_cursor hash_state::read_range(step_id step, slot_id id, std::int32_t from, std::int32_t to) {
  const auto length = slot(id).length;
  hash_cursor at{hash_chain_start(model_), 0};
  if (const auto* neighbour = find(id, from - 1)) at.chain = neighbour->chain;
  for (auto p = from; p < to; ++p) {
    const auto* entry = find(id, p);
    const bool is_right = check_entry(step, id, p, entry, at.chain);
    if (entry) at.chain = entry->chain;
    if (is_right && p >= length - model_.window) check_ring(step, id, p, at.chain);
    if (model_.ratio == 0) continue;
    at.partial += hash_mix(at.chain);
    if ((p + 1) % model_.ratio != 0) continue;
    if (is_right && entry->compressed != at.partial)
      log_->add("state_mismatch",
                fmt::format("{}: the compressed entry is {:#x}, its group sums to {:#x}",
                            place(step, id, p), entry->compressed, at.partial));
    at.partial = 0;
  }
  return at;
}

hash_cursor hash_state::read_prefix(step_id step, slot_id id) {
  auto& it = slot(id);
  const auto size = config_.block_size;
  std::int32_t from = 0;
  if (model_.check == hash_check::last_block && it.length > size) {
    from = (it.length - 1) / size * size;
    if (it.next_checked >= from / size) it.next_checked = 0;
    const auto other = it.next_checked++ * size;
    read_range(step, id, other, other + size);
  }
  auto at = read_range(step, id, from, it.length);
  if (at.partial != it.partial)
    log_->add("state_mismatch", fmt::format("{}: the partial sum is {:#x}, the blocks sum to {:#x}",
                                            place(step, id, it.length), it.partial, at.partial));
  at.partial = it.partial;
  return at;
}

// The entry at a position, if its block may be written; whatever is wrong has been said.
hash_entry* hash_state::find_writable(step_id step, slot_id id, std::int32_t position) {
  const auto block = block_of(id, position);
  if (!kv_.is_block(block)) {
    log_->add("write_trap_block", place(step, id, position) + ": no block there");
    return nullptr;
  }
  auto& it = slot(id);
  auto& entry = kv_.entries(block)[static_cast<std::size_t>(position % config_.block_size)];
  const auto& lease = kv_.lease(block);
  const bool is_leased =
    lease.slot == id && lease.sequence == it.sequence && lease.epoch == it.epoch;
  if (kv_.is_shared(block))
    log_->add("write_shared_block",
              fmt::format("{}: block {} is shared", place(step, id, position), block.value));
  else if (entry.state == hash_entry_state::freed)
    log_->add("write_unleased_block",
              fmt::format("{}: block {} is free", place(step, id, position), block.value));
  else if (!is_leased)
    log_->add("write_unleased_block",
              fmt::format("{}: block {} belongs to sequence {} epoch {}", place(step, id, position),
                          block.value, lease.sequence.value, lease.epoch));
  if (it.written_end) *it.written_end = std::max(*it.written_end, position + 1);
  return &entry;
}

void hash_state::write(step_id step, slot_id id, std::int32_t position, token_id token,
                       hash_cursor& cursor) {
  if (token < model_.first_id || token >= model_.vocab)
    log_->add("token_id_out_of_range",
              fmt::format("{}: id {} is not in [{}, {})", place(step, id, position), token,
                          model_.first_id, model_.vocab));
  if (config_.max_model_len > 0 && position >= config_.max_model_len)
    log_->add("write_beyond_limit", fmt::format("{}: max_model_len is {}",
                                                place(step, id, position), config_.max_model_len));
  cursor.chain = hash_chain_at(model_, experts_, cursor.chain, position, token);
  auto compressed = std::uint64_t{0};
  if (model_.ratio > 0) {
    cursor.partial += hash_mix(cursor.chain);
    if ((position + 1) % model_.ratio == 0) compressed = std::exchange(cursor.partial, 0);
  }
  if (ring_size_ > 0) ring_at(id, position) = cursor.chain;
  auto* entry = find_writable(step, id, position);
  if (!entry) return;
  *entry = {hash_entry_state::written, token, position, cursor.chain, compressed, step};
  const auto end = position + 1;
  if (config_.prefix_cache && end % (config_.block_size * config_.resume_stride) == 0)
    save_resume_point(id, end, cursor);
}

void hash_state::write_overhang(step_id step, slot_id id, std::int32_t position) {
  const auto limit = config_.max_model_len + config_.draft_overhang;
  if (config_.max_model_len > 0 && position >= limit)
    log_->add("write_beyond_limit",
              fmt::format("{}: the drafter's limit is {}", place(step, id, position), limit));
  if (auto* entry = find_writable(step, id, position))
    *entry = {hash_entry_state::overhang, -1, position, 0, 0, step};
}

void hash_state::accept(slot_id id, std::int32_t end, std::span<const std::uint64_t> chains) {
  auto& it = slot(id);
  for (auto p = it.length; p < end && model_.ratio > 0; ++p) {
    it.partial += hash_mix(chains[static_cast<std::size_t>(p - it.length)]);
    if ((p + 1) % model_.ratio == 0) it.partial = 0;
  }
  it.length = end;
}

std::int32_t hash_state::written_end(seq_id sequence) const {
  const auto found = written_ends_.find(sequence);
  return found == written_ends_.end() ? 0 : found->second;
}

void hash_state::poison_slot(slot_id id) {
  DI_CHECK(is_slot(id), "slot {} of {}", id.value, slots_.size());
  clear_slot(id);
  auto& it = slot(id);
  it.length = -1'000'000;
  it.history.penalty_sum = 0xdeaddeaddeaddeadu;
  std::fill(it.drafts.begin(), it.drafts.end(), -1);
  for (std::int32_t i = 0; i < ring_size_; ++i) ring_at(id, i) = 0xdeaddeaddeaddeadu;
}

}  // namespace deepinfer
