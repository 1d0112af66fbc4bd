// What the scheduler core says about itself, and the whole-state check.
#include <algorithm>
#include <vector>

#include "runtime/base/check.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

scheduler_stats scheduler_core::stats() const {
  auto out = totals_;
  out.queued = static_cast<std::int32_t>(queue_.size());
  out.running = static_cast<std::int32_t>(running_.size());
  out.retiring = retiring_;
  out.ended = ended_;
  out.inflight_steps = in_flight();
  out.promised_blocks = book_.promised();
  out.deferred_blocks = book_.parked_blocks();
  out.deferred_slots = book_.parked_slots();
  out.credit_blocks = static_cast<std::int64_t>(credit_blocks_.size());
  out.credit_slots = static_cast<std::int64_t>(credit_slots_.size());
  out.owed_blocks = owed_blocks_;
  out.owed_slots = owed_slots_;
  for (const auto& [id, sequence] : sequences_) {
    out.inflight_tokens += sequence->ledger.inflight_max();
    out.table_blocks += sequence->lease.block_count();
    out.held_slots += sequence->lease.has_slot() ? 1 : 0;
  }
  if (!queue_.is_empty()) out.oldest_queued_us = queue_.begin()->second->arrived_us;
  return out;
}

namespace {

/// Each id in [0, size) at most once.
class id_set {
public:
  id_set(const char* what, std::int32_t size)
    : what_(what),
      seen_(static_cast<std::size_t>(size)) {}

  void add(std::int32_t id) {
    DI_CHECK(0 <= id && id < static_cast<std::int32_t>(seen_.size()), "{} {} of {}", what_, id,
             seen_.size());
    DI_CHECK(!seen_[static_cast<std::size_t>(id)], "{} {} is held twice", what_, id);
    seen_[static_cast<std::size_t>(id)] = true;
  }

private:
  const char* what_;
  std::vector<bool> seen_;
};

}  // namespace

void scheduler_core::check_invariants() const {
  DI_CHECK(in_flight() <= config_.depth, "{} steps in flight, at most {}", in_flight(),
           config_.depth);
  id_set blocks("block", config_.num_kv_blocks), slots("slot", config_.state_slots);
  for (const auto block : credit_blocks_) blocks.add(block.value);
  for (const auto slot : credit_slots_) slots.add(slot.value);
  std::int64_t promised = 0, started = 0, refs = 0;
  std::int32_t queued = 0, running = 0, retiring = 0, ended = 0;
  for (const auto& [id, sequence] : sequences_) {
    const auto& it = *sequence;
    it.ledger.check_invariants();
    refs += it.ledger.refs();
    promised += it.promised_blocks;
    for (const auto block : it.lease.blocks()) blocks.add(block.value);
    if (it.lease.has_slot()) slots.add(it.lease.slot().value);
    const bool holds = it.phase == sequence_phase::running || it.phase == sequence_phase::retiring;
    started += holds ? 1 : 0;
    DI_CHECK(holds == it.lease.has_slot(), "sequence {} in phase {} holds slot: {}", id.value,
             static_cast<int>(it.phase), it.lease.has_slot());
    DI_CHECK(holds || it.lease.is_empty(), "sequence {} in phase {} holds {} blocks", id.value,
             static_cast<int>(it.phase), it.lease.block_count());
    DI_CHECK(it.lease.block_count() <= it.promised_blocks || !holds,
             "sequence {} holds {} blocks, {} were promised", id.value, it.lease.block_count(),
             it.promised_blocks);
    DI_CHECK(!holds ||
               it.ledger.capacity() == std::int64_t{it.lease.block_count()} * config_.block_size,
             "sequence {}: ledger knows {} tokens of table, it has {} blocks", id.value,
             it.ledger.capacity(), it.lease.block_count());
    queued += it.phase == sequence_phase::queued ? 1 : 0;
    running += it.phase == sequence_phase::running ? 1 : 0;
    retiring += it.phase == sequence_phase::retiring ? 1 : 0;
    ended += it.phase == sequence_phase::ended ? 1 : 0;
    DI_CHECK(it.phase != sequence_phase::ended || it.ledger.refs() > 0,
             "sequence {} has ended and nothing names it", id.value);
  }
  DI_CHECK(queued == queue_.size(), "{} queued, the queue has {}", queued, queue_.size());
  DI_CHECK(running == static_cast<std::int32_t>(running_.size()), "{} run, the list has {}",
           running, running_.size());
  DI_CHECK(retiring == retiring_, "{} retire, counted {}", retiring, retiring_);
  DI_CHECK(ended == ended_, "{} have ended, counted {}", ended, ended_);
  DI_CHECK(running <= config_.max_num_seqs, "{} active, at most {}", running, config_.max_num_seqs);
  DI_CHECK(promised == book_.promised(), "{} promised, the book says {}", promised,
           book_.promised());
  DI_CHECK(started == book_.held_slots(), "{} started, the book says {}", started,
           book_.held_slots());
  DI_CHECK(book_.unpromised() >= 0, "{} blocks unpromised", book_.unpromised());
  DI_CHECK(book_.free_slots() >= 0, "{} slots free", book_.free_slots());

  // References and sums again, from the launched steps [I02].
  std::int64_t rows = 0;
  for (auto step = settled_ + 1; step <= launched_; ++step) {
    const auto& record = record_of(step);
    DI_CHECK(record.step.value == step, "record of step {} holds {}", step, record.step.value);
    rows += static_cast<std::int64_t>(record.rows.size());
    for (const auto* sequence : record.rows) {
      bool named = false;
      for (std::int32_t i = 0; i < sequence->ledger.refs(); ++i)
        named = named || sequence->ledger.row(i).step.value == step;
      DI_CHECK(named, "step {} names sequence {}, whose ledger does not know it", step,
               sequence->id().value);
    }
  }
  DI_CHECK(rows == refs, "launched steps have {} rows, ledgers {}", rows, refs);
}

}  // namespace deepinfer
