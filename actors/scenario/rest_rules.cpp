#include "actors/scenario/rest_rules.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/core/batch_policy.hpp"
#include "runtime/core/capacity.hpp"
#include "runtime/core/sequence_state.hpp"

namespace deepinfer {

namespace {

/// Rows that could be planned, as far as blocks go.
class row_finder {
public:
  row_finder(const scheduler_core& core, const kv_pool& pool) : config_(core.config()) {
    const auto stats = core.stats();
    blocks_ = stats.credit_blocks + pool.free_blocks() + pool.cached_blocks();
    slots_ = stats.credit_slots + pool.free_slots();
    active_ = stats.running;
  }

  void see(const sequence_state& it) {
    if (it.is_held) return;
    if (it.phase == sequence_phase::queued) {
      if (it.wants_grammar() && !it.grammar) return;  // passed over
      if (!head_ || it.place < head_->place) head_ = &it;
    } else if (it.phase == sequence_phase::running && it.prompt_rest() > 0) {
      if (!chunk_ || it.started < chunk_->started) chunk_ = &it;
    } else if (it.phase == sequence_phase::running) {
      see_decode(it);
    }
  }

  std::optional<std::string> found() const {
    if (row_) return text(*row_, "a decode row");
    if (decode_need_ > 0 && decode_need_ <= blocks_) return text(*waiting_, "a decode row");
    if (decode_need_ > 0) return std::nullopt;  // it keeps what there is
    if (chunk_)
      return fill_need(*chunk_) <= blocks_ ? text(*chunk_, "a chunk of the prompt") : std::nullopt;
    if (!head_ || slots_ == 0 || active_ >= config_.max_num_seqs) return std::nullopt;
    const bool may_be_kept_out = config_.policy.used_share_max < 1;
    const bool is_looked_up = !config_.prefix_cache || head_->lookup == lookup_state::answered;
    if (may_be_kept_out || !is_looked_up || fill_need(*head_) > blocks_) return std::nullopt;
    return text(*head_, "the first row of the queue");
  }

private:
  std::int64_t missing(const sequence_state& it, std::int64_t tokens) const {
    return std::max<std::int64_t>(0,
                                  blocks_for(tokens, config_.block_size) - it.lease.block_count());
  }

  void see_decode(const sequence_state& it) {
    const auto& ledger = it.ledger;
    const auto committed = ledger.committed(), widths = ledger.inflight_widths();
    if (it.closed_gate.value > 0 || !decode_fits(committed, widths, config_.max_model_len)) return;
    const auto drafts =
      drafts_allowed(config_.num_drafts, committed, widths, config_.max_model_len);
    const auto width = 1 + std::max<std::int64_t>(0, drafts);
    const auto need =
      missing(it, reserve_tokens(committed, widths + width, config_.draft_overhang));
    if (need == 0) row_ = &it;
    decode_need_ += need;
    if (need > 0) waiting_ = &it;
  }

  /// For all its known ids and what a drafter writes behind them.
  std::int64_t fill_need(const sequence_state& it) const {
    return missing(it, it.fill_end + config_.draft_overhang);
  }

  static std::optional<std::string> text(const sequence_state& it, const char* what) {
    return fmt::format("{} of sequence {} could be planned", what, it.id().value);
  }

  const scheduler_config& config_;
  std::int64_t blocks_ = 0, slots_ = 0, active_ = 0;
  std::int64_t decode_need_ = 0;
  const sequence_state* row_ = nullptr;      ///< a decode row that needs no block
  const sequence_state* waiting_ = nullptr;  ///< one that does
  const sequence_state* chunk_ = nullptr;    ///< whose prompt is begun: the one started first
  const sequence_state* head_ = nullptr;     ///< of the queue
};

}  // namespace

std::vector<named_count> counts_of(const scheduler_core& core, const kv_pool& pool,
                                   std::int32_t sequences) {
  const auto s = core.stats();
  std::vector<named_count> out{{"num_requests_waiting", s.queued},
                               {"running requests", s.running},
                               {"retiring requests", s.retiring},
                               {"ended requests", s.ended},
                               {"inflight_steps", s.inflight_steps},
                               {"inflight_tokens", s.inflight_tokens},
                               {"leases_held", s.leases},
                               {"blocks in tables", s.table_blocks},
                               {"slots held", s.held_slots},
                               {"deferred blocks", s.deferred_blocks},
                               {"deferred slots", s.deferred_slots},
                               {"blocks of credit", s.credit_blocks},
                               {"slots of credit", s.credit_slots},
                               {"blocks owed to the scheduler", s.owed_blocks},
                               {"slots owed to the scheduler", s.owed_slots},
                               {"held blocks of the pool", pool.held_blocks()},
                               {"held slots of the pool", pool.held_slots()},
                               {"free blocks of the pool", pool.free_blocks()},
                               {"cached blocks of the pool", pool.cached_blocks()},
                               {"free slots of the pool", pool.free_slots()},
                               {"blocks owed by the pool", pool.owed_blocks()},
                               {"slots owed by the pool", pool.owed_slots()}};
  for (std::int32_t i = 1; i <= sequences; ++i) {
    const auto* it = core.find({static_cast<std::uint64_t>(i)});
    if (!it) continue;
    const auto& ledger = it->ledger;
    const auto add = [&](const char* what, std::int64_t value) { out.push_back({what, value, i}); };
    add("committed positions", ledger.committed());
    add("outputs", ledger.emitted());
    add("positions of the block table", ledger.capacity());
    add("widths in flight", ledger.inflight_widths());
    add("most tokens in flight", ledger.inflight_max());
    add("fewest tokens in flight", ledger.inflight_min());
    add("launched rows", ledger.refs());
    add("reasoning tokens", it->reasoning_tokens);
  }
  return out;
}

std::optional<std::string> negative_counter(const std::vector<named_count>& counts) {
  for (const auto& it : counts) {
    if (it.value >= 0) continue;
    const auto whose = it.sequence > 0 ? fmt::format(" of sequence {}", it.sequence) : "";
    return fmt::format("{}{} = {}", it.name, whose, it.value);
  }
  return std::nullopt;
}

std::optional<std::string> runnable_row(const scheduler_core& core, const kv_pool& pool,
                                        std::int32_t sequences) {
  if (core.is_paused() || core.in_flight() >= core.depth()) return std::nullopt;
  row_finder rows(core, pool);
  for (std::int32_t i = 1; i <= sequences; ++i)
    if (const auto* it = core.find({static_cast<std::uint64_t>(i)})) rows.see(*it);
  auto row = rows.found();
  if (row) *row += fmt::format(", with {} of {} steps in flight", core.in_flight(), core.depth());
  return row;
}

std::optional<std::string> endless_sleep(const sleep_view& it) {
  if (it.inflight_steps == 0 || !it.is_device_idle) return std::nullopt;
  // The gate looks for late steps four times in a watchdog's time, and a step before it may be late
  // as well.
  if (it.may_be_lost && it.oldest_age_ns <= 2 * it.watchdog_ns) return std::nullopt;
  return fmt::format("{} steps in flight, an idle device and nothing due that would settle them",
                     it.inflight_steps);
}

}  // namespace deepinfer
