#include "runtime/model/hash_state.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

constexpr std::int32_t trap_block = -1;
constexpr std::size_t errors_kept = 100;

}  // namespace

void canary_log::add(std::string_view name, std::string text) {
  const std::lock_guard lock(mutex_);
  ++count_;
  if (errors_.size() < errors_kept) errors_.push_back({std::string(name), std::move(text)});
}

std::vector<canary_error> canary_log::errors() const {
  const std::lock_guard lock(mutex_);
  return errors_;
}

std::uint64_t canary_log::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

void canary_log::clear() {
  const std::lock_guard lock(mutex_);
  errors_.clear();
  count_ = 0;
}

hash_state::hash_state(const runner_config& config, const hash_model_config& model, canary_log* log)
  : config_(config),
    model_(model),
    log_(log) {
  DI_CHECK(model.vocab > hash_first_word, "a vocabulary of {} has no words", model.vocab);
  DI_CHECK(config.block_size > 0 && config.num_kv_blocks > 0 && config.state_slots > 0,
           "{} blocks of {} tokens, {} slots", config.num_kv_blocks, config.block_size,
           config.state_slots);
  table_stride_ = config.num_kv_blocks;
  slots_.resize(static_cast<std::size_t>(config.state_slots));
  reset();
}

void hash_state::reset() {
  const auto blocks = static_cast<std::size_t>(config_.num_kv_blocks);
  entries_.assign(blocks * static_cast<std::size_t>(config_.block_size), {});
  tables_.assign(slots_.size() * static_cast<std::size_t>(table_stride_), trap_block);
  for (auto& slot : slots_) slot = {};
}

void hash_state::start(const hash_start& what) {
  auto& it = slot(what.slot);
  it = {};
  it.is_live = true;
  it.sequence = what.sequence;
  it.epoch = what.epoch;
  it.length = what.position;
  it.prompt_tokens = what.prompt_tokens;
  it.sampling = what.sampling;
  it.script = what.script;
  if (it.script && !it.script->prompt.empty())
    it.truth = std::make_unique<hash_sequence>(model_, *it.script, it.sampling);
  const auto row = tables_.begin() + std::int64_t{what.slot.value} * table_stride_;
  std::fill(row, row + table_stride_, trap_block);
}

void hash_state::append_blocks(step_id step, slot_id slot_of_row, std::int32_t first_ordinal,
                               std::span<const block_id> blocks) {
  const auto row = std::int64_t{slot_of_row.value} * table_stride_;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto ordinal = first_ordinal + static_cast<std::int32_t>(i);
    const auto block = blocks[i].value;
    if (block < 0 || block >= config_.num_kv_blocks || ordinal < 0 || ordinal >= table_stride_) {
      log_->add("write_trap_block",
                fmt::format("step {}: block {} for ordinal {} of slot {}, there are {} blocks",
                            step.value, block, ordinal, slot_of_row.value, config_.num_kv_blocks));
      continue;
    }
    tables_[static_cast<std::size_t>(row + ordinal)] = block;
    // Taken from the free list: what it held is gone, its positions may be written.
    const auto first = entries_.begin() + std::int64_t{block} * config_.block_size;
    for (auto entry = first; entry != first + config_.block_size; ++entry)
      if (entry->state == entry_state::freed) entry->state = entry_state::unwritten;
  }
}

hash_state::kv_entry* hash_state::find(slot_id slot_of_row, std::int32_t position) {
  const auto ordinal = position / config_.block_size;
  if (position < 0 || ordinal >= table_stride_) return nullptr;
  const auto row = std::int64_t{slot_of_row.value} * table_stride_;
  const auto block = tables_[static_cast<std::size_t>(row + ordinal)];
  if (block == trap_block) return nullptr;
  const auto offset = position % config_.block_size;
  return &entries_[static_cast<std::size_t>(std::int64_t{block} * config_.block_size + offset)];
}

std::string hash_state::place(step_id step, slot_id slot_of_row, std::int32_t position) {
  return fmt::format("step {}, sequence {}, slot {}, position {}", step.value,
                     slot(slot_of_row).sequence.value, slot_of_row.value, position);
}

std::uint64_t hash_state::read_prefix(step_id step, slot_id slot_of_row, std::int32_t end) {
  auto& it = slot(slot_of_row);
  std::uint64_t chain = hash_chain_start(model_);
  for (std::int32_t p = 0; p < end; ++p) {
    const auto* entry = find(slot_of_row, p);
    if (!entry) {
      log_->add("canary_mismatch", place(step, slot_of_row, p) + ": reads the trap block");
      continue;
    }
    const auto before = chain;
    chain = entry->chain;
    if (entry->state == entry_state::freed) {
      log_->add("read_freed_block", fmt::format("{}: written by step {} and freed since",
                                                place(step, slot_of_row, p), entry->writer.value));
    } else if (entry->state == entry_state::unwritten) {
      log_->add("read_beyond_length", place(step, slot_of_row, p) + ": never written");
    } else if (entry->position != p) {
      log_->add("canary_mismatch",
                fmt::format("{}: holds position {} of step {}", place(step, slot_of_row, p),
                            entry->position, entry->writer.value));
    } else if (hash_chain_next(before, entry->id) != chain ||
               (it.truth && it.truth->chain(p) != chain)) {
      const auto expected = it.truth ? it.truth->chain(p) : hash_chain_next(before, entry->id);
      log_->add("canary_mismatch",
                fmt::format("{}: chain {:#x} with id {} of step {}, expected {:#x}",
                            place(step, slot_of_row, p), chain, entry->id, entry->writer.value,
                            expected));
    }
  }
  return chain;
}

std::uint64_t hash_state::write(step_id step, slot_id slot_of_row, std::int32_t position,
                                token_id id, std::uint64_t chain_before) {
  if (id <= 0 || id >= model_.vocab)
    log_->add("token_id_out_of_range",
              fmt::format("{}: id {} is not in [1, {})", place(step, slot_of_row, position), id,
                          model_.vocab));
  if (config_.max_model_len > 0 && position >= config_.max_model_len)
    log_->add("write_beyond_limit",
              fmt::format("{}: max_model_len is {}", place(step, slot_of_row, position),
                          config_.max_model_len));
  const auto chain = hash_chain_next(chain_before, id);
  auto* entry = find(slot_of_row, position);
  if (!entry) {
    log_->add("write_trap_block", place(step, slot_of_row, position) + ": no block there");
    return chain;
  }
  if (entry->state == entry_state::freed)
    log_->add("write_unleased_block", place(step, slot_of_row, position) + ": the block is free");
  *entry = {entry_state::written, id, position, chain, step};
  return chain;
}

void hash_state::poison_block(block_id block) {
  DI_CHECK(block.value >= 0 && block.value < config_.num_kv_blocks, "block {} of {}", block.value,
           config_.num_kv_blocks);
  const auto first = entries_.begin() + std::int64_t{block.value} * config_.block_size;
  for (auto entry = first; entry != first + config_.block_size; ++entry) {
    entry->state = entry_state::freed;
    entry->chain = ~entry->chain;
    entry->position = -1;
  }
}

void hash_state::poison_slot(slot_id id) {
  DI_CHECK(is_slot(id), "slot {} of {}", id.value, slots_.size());
  auto& it = slot(id);
  it = {};
  it.length = -1'000'000;
  it.penalty_sum = 0xdeaddeaddeaddeadu;
}

}  // namespace deepinfer
