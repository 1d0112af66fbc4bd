// What the scheduler core says about itself, and the whole-state check.
#include <algorithm>
#include <array>
#include <vector>

#include "runtime/base/check.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

scheduler_stats scheduler_core::stats() const {
  auto out = totals_;
  out.queued = static_cast<std::int32_t>(queue_.size()) + preempted_;
  out.running = static_cast<std::int32_t>(running_.size());
  out.retiring = static_cast<std::int32_t>(retiring_.size());
  out.ended = ended_;
  out.inflight_steps = in_flight();
  out.deferred_blocks = book_.promised();
  out.deferred_slots = book_.parked_slots();
  out.credit_blocks = static_cast<std::int64_t>(credit_blocks_.size());
  out.credit_slots = static_cast<std::int64_t>(credit_slots_.size());
  out.owed_blocks = owed_blocks_;
  out.owed_slots = owed_slots_;
  for (const auto& [id, sequence] : sequences_) {
    out.inflight_tokens += sequence->ledger.inflight_max();
    if (sequence->ledger.refs() > 0) out.leases += sequence->lease.block_count() + 1;
    out.held_slots += sequence->lease.has_slot() ? 1 : 0;
  }
  out.table_blocks = book_.tabled();
  out.leases += book_.promised() + book_.parked_slots();
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
  DI_CHECK(in_flight() <= config_.max_depth, "{} steps in flight, at most {}", in_flight(),
           config_.max_depth);
  id_set credit("credit block", config_.num_kv_blocks), slots("slot", config_.state_slots);
  for (const auto block : credit_blocks_) {
    credit.add(block.value);
    DI_CHECK(book_.tables_of(block) == 0, "block {} is credit and in a table", block.value);
  }
  for (const auto slot : credit_slots_) slots.add(slot.value);
  std::vector<std::int32_t> uses(static_cast<std::size_t>(config_.num_kv_blocks));
  std::int64_t started = 0, refs = 0, held = 0;
  std::array<std::int32_t, 5> phases{};
  for (const auto& [id, sequence] : sequences_) {
    const auto& it = *sequence;
    it.ledger.check_invariants();
    refs += it.ledger.refs();
    held += it.is_held && it.phase != sequence_phase::ended ? 1 : 0;
    ++phases[static_cast<std::size_t>(it.phase)];
    id_set own("block of one table", config_.num_kv_blocks);
    for (const auto block : it.lease.blocks()) {
      own.add(block.value);
      ++uses[static_cast<std::size_t>(block.value)];
    }
    if (it.lease.has_slot()) slots.add(it.lease.slot().value);
    const bool holds = it.phase == sequence_phase::running || it.phase == sequence_phase::retiring;
    started += holds ? 1 : 0;
    DI_CHECK(holds == it.lease.has_slot(), "sequence {} in phase {} holds slot: {}", id.value,
             static_cast<int>(it.phase), it.lease.has_slot());
    DI_CHECK(holds || it.phase == sequence_phase::queued || it.lease.is_empty(),
             "sequence {} in phase {} holds {} blocks", id.value, static_cast<int>(it.phase),
             it.lease.block_count());
    DI_CHECK(it.lease.is_empty() ||
               it.ledger.capacity() == std::int64_t{it.lease.block_count()} * config_.block_size,
             "sequence {}: ledger knows {} tokens of table, it has {} blocks", id.value,
             it.ledger.capacity(), it.lease.block_count());
    DI_CHECK(it.ledger.known() == it.prompt_tokens() + std::ssize(it.outputs),
             "sequence {}: the ledger knows {} ids, there are {}", id.value, it.ledger.known(),
             it.prompt_tokens() + std::ssize(it.outputs));
    DI_CHECK(it.phase != sequence_phase::ended || it.ledger.refs() > 0,
             "sequence {} has ended and nothing names it", id.value);
    DI_CHECK(it.phase != sequence_phase::preempted || it.ledger.refs() > 0,
             "sequence {} waits for rows that nothing launched", id.value);
  }
  check_phases(phases);
  DI_CHECK(held == held_, "{} are held, counted {}", held, held_);
  DI_CHECK(started == book_.held_slots(), "{} started, the book says {}", started,
           book_.held_slots());
  DI_CHECK(book_.free_slots() >= 0, "{} slots free", book_.free_slots());
  DI_CHECK(outside() >= 0, "{} blocks outside", outside());
  for (std::int32_t block = 0; block < config_.num_kv_blocks; ++block)
    DI_CHECK(uses[static_cast<std::size_t>(block)] == book_.tables_of({block}),
             "block {} is in {} tables, the book says {}", block,
             uses[static_cast<std::size_t>(block)], book_.tables_of({block}));
  check_references(refs);
}

void scheduler_core::check_phases(const std::array<std::int32_t, 5>& phases) const {
  const auto of = [&](sequence_phase phase) { return phases[static_cast<std::size_t>(phase)]; };
  const auto queued = of(sequence_phase::queued), running = of(sequence_phase::running),
             retiring = of(sequence_phase::retiring), preempted = of(sequence_phase::preempted),
             ended = of(sequence_phase::ended);
  DI_CHECK(queued == queue_.size(), "{} queued, the queue has {}", queued, queue_.size());
  DI_CHECK(running == std::ssize(running_), "{} run, the list has {}", running, running_.size());
  DI_CHECK(retiring == std::ssize(retiring_), "{} retire, the list has {}", retiring,
           retiring_.size());
  DI_CHECK(preempted == preempted_, "{} are preempted, counted {}", preempted, preempted_);
  DI_CHECK(ended == ended_, "{} have ended, counted {}", ended, ended_);
  DI_CHECK(running <= config_.max_num_seqs, "{} active, at most {}", running, config_.max_num_seqs);
}

// References again, from the launched steps [I02].
void scheduler_core::check_references(std::int64_t refs) const {
  std::int64_t rows = 0;
  for (auto step = settled_ + 1; step <= launched_; ++step) {
    const auto& record = record_of(step);
    DI_CHECK(record.step.value == step, "record of step {} holds {}", step, record.step.value);
    rows += std::ssize(record.rows);
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
