// Metrics of a played rank, and the rules that hold whenever its actors are at rest.
#include <fmt/format.h>

#include "actors/scenario/rest_rules.hpp"
#include "actors/scenario/world_rank.hpp"

namespace deepinfer {

std::optional<std::int64_t> played_rank::metric(std::string_view name) const {
  if (name == "ready") return core_ ? 1 : 0;
  if (name == "dead_ranks" || name == "client_chunks_pending" || name == "expert_tokens_total" ||
      name == "placement_version" || name == "eplb_rebalances_total" ||
      name == "eplb_cancelled_total")
    return 0;
  if (name == "decode_gap_seconds_max") return decode_gap_us_;
  if (const auto value = pool_metric(name)) return value;
  return core_metric(name);
}

std::optional<std::int64_t> played_rank::pool_metric(std::string_view name) const {
  const auto stats = core_ ? core_->stats() : scheduler_stats{};
  const auto& config = it_.engine;
  const std::int64_t blocks = config.blocks_of(rank_);
  if (name == "kv_free_blocks")
    return (pool_ ? pool_->free_blocks() : blocks) + stats.credit_blocks;
  if (name == "kv_cached_blocks") return pool_ ? pool_->cached_blocks() : 0;
  if (name == "kv_held_blocks") return stats.table_blocks;
  if (name == "state_slots_free")
    return (pool_ ? pool_->free_slots() : config.slots()) + stats.credit_slots;
  if (name == "prefix_evictions_total") return pool_ ? pool_->counters().evictions : 0;
  return std::nullopt;
}

std::optional<std::int64_t> played_rank::core_metric(std::string_view name) const {
  const auto s = core_ ? core_->stats() : scheduler_stats{};
  const auto whole = [](auto value) { return static_cast<std::int64_t>(value); };
  if (name == "num_requests_running") return whole(s.running + s.retiring);
  if (name == "num_requests_waiting") return whole(s.queued);
  if (name == "deferred_release_pending") return s.deferred_blocks;
  if (name == "inflight_steps") return whole(s.inflight_steps);
  if (name == "inflight_tokens") return s.inflight_tokens;
  if (name == "leases_held") return s.leases;
  if (name == "generation_tokens_total") return whole(s.emitted_tokens);
  if (name == "prompt_tokens_total") return whole(s.prompt_tokens);
  if (name == "num_preemptions_total") return whole(s.preemptions);
  if (name == "prefix_cache_hits_total") return whole(s.cached_tokens);
  if (name == "request_aborts_total") return whole(s.aborts);
  if (name == "request_success_total") return whole(s.final_records);
  if (name == "spec_decode_num_draft_tokens_total") return whole(s.draft_tokens);
  if (name == "spec_decode_num_accepted_tokens_total") return whole(s.accepted_tokens);
  if (name == "time_to_first_token_seconds_count") return whole(s.first_tokens);
  if (name == "inter_token_latency_seconds_count")
    return whole(s.emitted_tokens) - whole(s.first_tokens);
  if (name == "late_messages_total") return whole(s.late_messages);
  if (name == "device_idle_seconds_total") {
    if (!accountant_) return 0;
    const auto& totals = accountant_->totals();
    const auto idle =
      totals.idle_ns_total() - totals.idle_ns[static_cast<std::size_t>(idle_cause::no_work)];
    return idle / 1000;
  }
  return std::nullopt;
}

// Names and numbers of the books, which are right also while the host is busy.
played_rank::broken played_rank::broken_books() const {
  if (auto name = names_.broken()) return std::pair{"published_unsettled", std::move(*name)};
  if (auto count = negative_counter(counts_of(*core_, *pool_, requests())))
    return std::pair{"counter_negative", std::move(*count)};
  return std::nullopt;
}

// A scheduler that has gone to sleep has nothing to launch and waits for somebody.
played_rank::broken played_rank::broken_sleep() const {
  sleep_view sleep;
  sleep.inflight_steps = core_->in_flight();
  sleep.is_device_idle = device_.is_idle();
  sleep.may_be_lost = may_lose_;
  if (!launched_ns_.empty()) sleep.oldest_age_ns = device_.now_ns() - launched_ns_.begin()->second;
  sleep.watchdog_ns = it_.engine.watchdog_us * 1000;
  if (auto endless = endless_sleep(sleep))
    return std::pair{"asleep_with_work_in_flight", std::move(*endless)};
  if (!suspects_.empty()) return std::nullopt;
  if (auto row = runnable_row(*core_, *pool_, requests()))
    return std::pair{"idle_while_runnable", std::move(*row)};
  return std::nullopt;
}

played_rank::broken played_rank::broken_conservation(const scheduler_stats& s) {
  const auto held = s.credit_blocks + s.table_blocks + s.deferred_blocks;
  if (pool_->held_blocks() == held)
    has_suspect_ = false;
  else if (!has_suspect_)
    return std::pair{std::string("blocks_not_conserved"),
                     fmt::format("the pool has given {} blocks, {} are credit, {} in tables, {} "
                                 "behind fences",
                                 pool_->held_blocks(), s.credit_blocks, s.table_blocks,
                                 s.deferred_blocks)};
  return std::nullopt;
}

std::optional<std::pair<std::string, std::string>> played_rank::broken_rule(bool at_end) {
  if (runner_->canary().count() > 0) {
    const auto errors = runner_->canary().errors();
    return std::pair{errors.front().name, errors.front().text};
  }
  if (!core_ || !pool_) return std::nullopt;
  if (auto found = broken_books()) return found;
  // A busy host has things to say that it has not sent yet.
  if (device_.now_ns() < busy_until_ns_) return std::nullopt;
  const auto s = core_->stats();
  if (auto found = broken_conservation(s)) return found;
  if (auto found = broken_sleep()) return found;
  if (!at_end) return std::nullopt;
  const auto idle = pool_->free_blocks() + pool_->cached_blocks() + s.credit_blocks;
  if (s.inflight_steps == 0 && s.leases == 0 && s.deferred_blocks == 0 && !core_->has_work() &&
      idle == pool_->total_blocks())
    return std::nullopt;
  return std::pair{std::string("not_empty_at_end"),
                   fmt::format("{} steps in flight, {} leases, {} blocks deferred, {} of {} blocks "
                               "free or cached",
                               s.inflight_steps, s.leases, s.deferred_blocks, idle,
                               pool_->total_blocks())};
}

}  // namespace deepinfer
