#include "actors/rank_metrics.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>

namespace deepinfer {
namespace {

constexpr std::size_t forward = static_cast<std::size_t>(step_phase::forward);
constexpr std::array<std::string_view, idle_causes> cause_names{"plan", "settle", "vote",
                                                                "transfer", "no_work"};

double seconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

std::int64_t end_of(const phase_times& times) {
  return *std::max_element(times.end_ns.begin() + forward, times.end_ns.end() - 1);
}

}  // namespace

rank_metrics::rank_metrics(metrics& counts, const scheduler_config& config)
  : counts_(counts),
    rank_(std::to_string(config.rank.value)),
    inflight_steps_(&counts, metric::inflight_steps),
    inflight_tokens_(&counts, metric::inflight_tokens),
    reserved_blocks_(&counts, metric::kv_reserved_blocks),
    deferred_blocks_(&counts, metric::deferred_release_pending),
    leases_(&counts, metric::leases_held) {
  const auto rows = static_cast<std::size_t>(config.max_num_seqs);
  for (auto& step : open_) {
    step.kinds.reserve(rows);
    step.widths.reserve(rows);
  }
  counts_.set(metric::ready, 1, {rank_});
  counts_.set(metric::overlap_ratio, 1, {rank_});
  counts_.set(metric::decode_gap_seconds_max, 0, {rank_});
}

rank_metrics::~rank_metrics() {
  counts_.set(metric::ready, 0, {rank_});
}

void rank_metrics::note_launch(const step_plan& plan, const step_trace& it) {
  auto& step = step_of(plan.step);
  step.tokens = std::accumulate(plan.yields_max.begin(), plan.yields_max.end(), std::int64_t{0});
  step.blocks = std::ssize(plan.blocks);
  step.kinds = plan.kinds;
  step.widths = plan.widths;
  inflight_steps_.set(inflight_steps_.value() + 1);
  inflight_tokens_.set(inflight_tokens_.value() + step.tokens);
  reserved_blocks_.set(reserved_blocks_.value() + step.blocks);
  const auto fresh = std::count(plan.sources.begin(), plan.sources.end(), from_fresh);
  const auto slot = std::count(plan.sources.begin(), plan.sources.end(), from_slot);
  const auto row = std::ssize(plan.sources) - fresh - slot;
  counts_.add(metric::remap_total, static_cast<double>(fresh), {"fresh"});
  counts_.add(metric::remap_total, static_cast<double>(slot), {"slot"});
  counts_.add(metric::remap_total, static_cast<double>(row), {"row"});
  counts_.observe(metric::plan_duration_seconds, seconds(it.plan_end_ns - it.plan_begin_ns));
}

void rank_metrics::note_settle(const step_result& result, const step_trace& it,
                               const bubble_totals& totals) {
  auto& step = step_of(result.step);
  inflight_steps_.set(inflight_steps_.value() - 1);
  inflight_tokens_.set(inflight_tokens_.value() - step.tokens);
  reserved_blocks_.set(reserved_blocks_.value() - step.blocks);
  deferred_blocks_.set(it.parked_blocks);
  counts_.add(metric::steps_total, 1, {it.kind});
  counts_.observe(metric::iteration_tokens_total, it.tokens);
  counts_.observe(metric::settle_duration_seconds, seconds(it.settle_end_ns - it.settle_begin_ns));
  const auto& widths = result.widths.size() == step.kinds.size() ? result.widths : step.widths;
  std::int64_t rows_with_drafts = 0;
  if (result.code == errc::ok)
    for (std::size_t i = 0; i < step.kinds.size(); ++i)
      rows_with_drafts += step.kinds[i] == row_kind::decode && widths[i] > 1;
  counts_.add(metric::spec_decode_num_drafts_total, static_cast<double>(rows_with_drafts));
  note_step_time(it);
  note_decode(it);
  note_device(totals);
  note_window(totals);
  // What waited for this step, or for one before it, leaves the collector now.
  const auto stays = std::find_if(parked_.begin(), parked_.end(),
                                  [&](const auto& parked) { return result.step < parked.fence; });
  for (auto passed = parked_.begin(); passed != stays; ++passed)
    counts_.observe(metric::deferred_release_wait_seconds,
                    seconds(it.settle_end_ns - passed->since_ns));
  parked_.erase(parked_.begin(), stays);
}

void rank_metrics::end_step_time(std::int64_t end_ns) {
  if (step_begin_ns_ > 0 && end_ns > step_begin_ns_)
    counts_.observe(metric::step_duration_seconds, seconds(end_ns - step_begin_ns_), {step_kind_});
  step_begin_ns_ = 0;
}

/// A step lasts until the next one begins; the last one of a busy period until its own end.
void rank_metrics::note_step_time(const step_trace& it) {
  const auto begin_ns = it.device.begin_ns[forward];
  if (begin_ns <= 0) return;
  end_step_time(it.is_after_rest ? step_end_ns_ : begin_ns);
  step_kind_ = it.kind;
  step_begin_ns_ = begin_ns;
  step_end_ns_ = end_of(it.device);
}

void rank_metrics::note_decode(const step_trace& it) {
  const std::string_view kind = it.kind;
  if (it.is_after_rest) last_decode_ns_ = 0;
  if (it.rows == 0 || (kind != "decode" && kind != "mixed")) return;
  if (last_decode_ns_ > 0 && it.settle_end_ns - last_decode_ns_ > decode_gap_ns_) {
    decode_gap_ns_ = it.settle_end_ns - last_decode_ns_;
    counts_.set(metric::decode_gap_seconds_max, seconds(decode_gap_ns_), {rank_});
  }
  last_decode_ns_ = it.settle_end_ns;
}

void rank_metrics::count_seconds(metric m, std::int64_t ns,
                                 std::initializer_list<std::string_view> labels) {
  if (ns > 0) counts_.add(m, seconds(ns), labels);
}

void rank_metrics::note_device(const bubble_totals& totals) {
  count_seconds(metric::device_busy_seconds_total, totals.busy_ns - totals_.busy_ns, {});
  for (std::size_t i = 0; i < idle_causes; ++i)
    count_seconds(metric::device_idle_seconds_total, totals.idle_ns[i] - totals_.idle_ns[i],
                  {cause_names[i]});
  totals_ = totals;
}

void rank_metrics::note_window(const bubble_totals& totals) {
  const auto& begin = window_[window_next_];
  const auto hidden_ns = totals.hidden_host_ns - begin.hidden_ns;
  const auto all_ns = hidden_ns + totals.exposed_host_ns - begin.exposed_ns;
  if (all_ns > 0)
    counts_.set(metric::overlap_ratio, static_cast<double>(hidden_ns) / static_cast<double>(all_ns),
                {rank_});
  if (totals.steps % window_part != 0) return;
  window_[window_next_] = {totals.hidden_host_ns, totals.exposed_host_ns};
  window_next_ = (window_next_ + 1) % window_.size();
}

void rank_metrics::note_leases(const lease_return& leases, step_id settled, std::int64_t now_ns) {
  std::int64_t blocks = 0;
  for (const auto& entry : leases.entries) {
    if (entry.fence <= settled || entry.blocks.empty()) continue;
    blocks += std::ssize(entry.blocks);
    parked_.push_back({entry.fence, now_ns});
  }
  counts_.add(metric::deferred_release_total, static_cast<double>(blocks));
}

void rank_metrics::count_up(metric m, std::uint64_t now, std::uint64_t& before) {
  if (now > before) counts_.add(m, static_cast<double>(now - before));
  before = now;
}

void rank_metrics::note_stats(const scheduler_stats& stats) {
  leases_.set(stats.leases);
  deferred_blocks_.set(stats.deferred_blocks);
  count_up(metric::num_preemptions_total, stats.preemptions, stats_.preemptions);
  count_up(metric::spec_decode_num_draft_tokens_total, stats.draft_tokens, stats_.draft_tokens);
  count_up(metric::spec_decode_num_accepted_tokens_total, stats.accepted_tokens,
           stats_.accepted_tokens);
  count_up(metric::late_messages_total, stats.late_messages, stats_.late_messages);
}

void rank_metrics::note_rest(const scheduler_stats& stats) {
  end_step_time(step_end_ns_);
  last_decode_ns_ = 0;
  note_stats(stats);
}

void refresh(metrics& counts, const node_stats& stats) {
  const auto used = stats.kv_blocks_total - stats.kv_blocks_free - stats.kv_blocks_cached;
  counts.set(metric::kv_cache_usage_perc,
             stats.kv_blocks_total == 0
               ? 0.0
               : static_cast<double>(used) / static_cast<double>(stats.kv_blocks_total));
  counts.set(metric::kv_free_blocks, static_cast<double>(stats.kv_blocks_free));
  counts.set(metric::kv_cached_blocks, static_cast<double>(stats.kv_blocks_cached));
  counts.set(metric::kv_held_blocks,
             static_cast<double>(
               std::max(std::int64_t{0}, used - std::max(std::int64_t{0}, stats.deferred_blocks))));
  counts.set(metric::state_slots_free, static_cast<double>(stats.slots_free));
}

}  // namespace deepinfer
