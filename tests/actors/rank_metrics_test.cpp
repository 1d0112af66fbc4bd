// What a rank counts: a driven core, and a whole node.
#include <doctest/doctest.h>

#include <thread>

#include "actors/node.hpp"
#include "actors/rank_metrics.hpp"
#include "runtime/core/scheduler_core.hpp"
#include "tests/actors/read_answer.hpp"
#include "tests/support/counted_allocations.hpp"

using namespace deepinfer;

namespace {

constexpr std::int64_t us = 1000;

/// Eight sequences of a scheduler with drafts, at depth 2, on a device of 100 us a step.
class driven_rank {
public:
  driven_rank() : core_(config(), {}) {
    sampling_params params;
    params.max_tokens = 900;
    const auto shared = std::make_shared<const sampling_params>(params);
    const auto prompt = std::make_shared<const std::vector<token_id>>(5, 9);
    for (std::uint64_t id = 1; id <= 8; ++id) core_.submit({{id}, prompt, shared, 0}, 0);
    kv_grant grant;
    for (std::int32_t i = 0; i < 4000; ++i) grant.blocks.push_back({i});
    for (std::int32_t i = 0; i < 8; ++i) grant.slots.push_back({i});
    core_.grant(grant);
  }

  static scheduler_config config() {
    scheduler_config out;
    out.rank = {3};
    out.depth = 2;
    out.num_drafts = 2;
    out.max_num_seqs = 8;
    out.max_num_batched_tokens = 64;
    out.max_model_len = 1024;
    out.num_kv_blocks = 4000;
    out.block_size = 4;
    out.state_slots = 16;
    out.vocab_size = 100;
    return out;
  }

  scheduler_core& core() { return core_; }

  /// Launches a step that is planned at `now_us` and takes 5 us to plan.
  bool launch(rank_metrics& counted, std::int64_t now_us) {
    auto& plan = plans_[(core_.newest_launched().value + 1) % plans_.size()];
    if (!core_.plan(plan)) return false;
    auto& it = traces_[plan.step.value % traces_.size()];
    it = {};
    it.step = plan.step;
    it.kind = plan.kind == step_kind::prefill ? "prefill" : "decode";
    it.rows = plan.rows();
    it.tokens = plan.total_width;
    it.is_after_rest = plan.step.value == 1;
    it.plan_begin_ns = now_us * us;
    it.plan_end_ns = (now_us + 5) * us;
    measure([&] { counted.note_launch(plan, it); });
    return true;
  }

  /// Settles the oldest step: every row gives its first token and one draft.
  void settle(rank_metrics& counted, std::int64_t now_us) {
    const auto step = core_.newest_settled().value + 1;
    const auto& plan = plans_[step % plans_.size()];
    auto& it = traces_[step % traces_.size()];
    result_.clear();
    result_.step = plan.step;
    result_.sequences = plan.sequences;
    result_.epochs = plan.epochs;
    result_.widths = plan.widths;
    result_.drafts_per_row = 2;
    for (std::size_t i = 0; i < plan.yields_max.size(); ++i) {
      const auto given = std::min(plan.yields_max[i], plan.yields_min[i] + 1);
      for (std::int32_t n = 0; n < given; ++n) result_.tokens.push_back(9);
      result_.token_begin.push_back(static_cast<std::int32_t>(result_.tokens.size()));
      for (int draft = 0; draft < 2; ++draft) {
        result_.drafts.push_back(given > 0 ? 9 : -1);
        result_.confidences.push_back(0.5f);
      }
    }
    const auto begin_ns = (now_us - 100) * us;
    it.device.begin_ns = {0, begin_ns, begin_ns + 80 * us, 0, 0};
    it.device.end_ns = {0, begin_ns + 80 * us, begin_ns + 100 * us, 0, 0};
    core_.settle(result_);
    it.settle_begin_ns = now_us * us;
    it.settle_end_ns = (now_us + 2) * us;
    it.parked_blocks = static_cast<std::int32_t>(core_.deferred_blocks());
    totals_.steps += 1;
    totals_.busy_ns += 100 * us;
    totals_.idle_ns[static_cast<std::size_t>(idle_cause::settle)] += 3 * us;
    totals_.hidden_host_ns += 6 * us;
    totals_.exposed_host_ns += 2 * us;
    core_.take_outbox(box_);
    measure([&] {
      counted.note_settle(result_, it, totals_);
      if (box_.has_leases())
        counted.note_leases(box_.leases, core_.newest_settled(), it.settle_end_ns);
    });
  }

  /// Calls of operator new by `rank_metrics` since the last time.
  std::int64_t taken() { return std::exchange(taken_, 0); }

private:
  template <class Work>
  void measure(const Work& work) {
    taken_ += test::allocations_of(work);
  }

  scheduler_core core_;
  std::array<step_plan, 4> plans_;
  std::array<step_trace, 4> traces_;
  step_result result_;
  scheduler_outbox box_;
  bubble_totals totals_;
  std::int64_t taken_ = 0;
};

}  // namespace

TEST_CASE("counting costs a step no allocation, and the counts are those of its plan and result") {
  metrics counts;
  driven_rank rank;
  {
    rank_metrics counted(counts, driven_rank::config());
    CHECK(counts.value(metric::ready, {"3"}) == 1.0);
    std::int64_t now_us = 1000;
    REQUIRE(rank.launch(counted, now_us));
    for (int step = 0; step < 100; ++step) {
      now_us += 110;
      REQUIRE(rank.launch(counted, now_us - 50));
      CHECK(counts.value(metric::inflight_steps) == 2.0);
      CHECK(counts.value(metric::inflight_tokens) ==
            static_cast<double>(rank.core().stats().inflight_tokens));
      rank.settle(counted, now_us);
      if (step >= 50) CHECK(rank.taken() == 0);
      rank.taken();
    }
    counted.note_stats(rank.core().stats());
    const auto stats = rank.core().stats();
    CHECK(counts.value(metric::steps_total, {"prefill"}) == 1.0);
    CHECK(counts.value(metric::steps_total, {"decode"}) == 99.0);
    CHECK(counts.value(metric::remap_total, {"fresh"}) == static_cast<double>(stats.fresh_rows));
    CHECK(counts.value(metric::remap_total, {"row"}) == static_cast<double>(stats.row_rows));
    CHECK(stats.row_rows > 700);
    CHECK(counts.value(metric::plan_duration_seconds) == 101.0);
    CHECK(counts.value(metric::settle_duration_seconds) == 100.0);
    CHECK(counts.value(metric::iteration_tokens_total) == 100.0);
    // The newest step is open: its successor has not begun.
    CHECK(counts.value(metric::step_duration_seconds, {"decode"}) == 98.0);
    CHECK(*counts.quantile(metric::step_duration_seconds, 0.5, {"decode"}) > 0.0001);
    CHECK(*counts.quantile(metric::step_duration_seconds, 0.5, {"decode"}) <= 0.00025);
    CHECK(counts.value(metric::device_busy_seconds_total) == doctest::Approx(100 * 100e-6));
    CHECK(counts.value(metric::device_idle_seconds_total, {"settle"}) ==
          doctest::Approx(100 * 3e-6));
    CHECK(counts.value(metric::device_idle_seconds_total, {"plan"}) == 0.0);
    CHECK(counts.value(metric::overlap_ratio, {"3"}) == doctest::Approx(0.75));
    CHECK(counts.value(metric::decode_gap_seconds_max, {"3"}) == doctest::Approx(110e-6));
    CHECK(counts.value(metric::spec_decode_num_drafts_total) == 99.0 * 8);
    CHECK(counts.value(metric::spec_decode_num_draft_tokens_total) ==
          static_cast<double>(stats.draft_tokens));
    CHECK(stats.draft_tokens == 99 * 8 * 2);
    CHECK(counts.value(metric::spec_decode_num_accepted_tokens_total) ==
          static_cast<double>(stats.accepted_tokens));
    counted.note_rest(stats);
    CHECK(counts.value(metric::step_duration_seconds, {"decode"}) == 99.0);
  }
  // A rank that has gone leaves its counters, and no gauge.
  CHECK(counts.value(metric::ready, {"3"}) == 0.0);
  CHECK(counts.value(metric::inflight_steps) == 0.0);
  CHECK(counts.value(metric::inflight_tokens) == 0.0);
  CHECK(counts.value(metric::kv_reserved_blocks) == 0.0);
  CHECK(counts.value(metric::steps_total, {"decode"}) == 99.0);
}

TEST_CASE("blocks behind a fence are counted when they are parked, and timed until it settles") {
  metrics counts;
  rank_metrics counted(counts, driven_rank::config());
  const auto parked = [](std::uint64_t fence, std::int32_t blocks) {
    lease_return out;
    out.entries.push_back({{fence}, std::vector<block_id>(static_cast<std::size_t>(blocks)), {}});
    return out;
  };
  counted.note_leases(parked(4, 3), {2}, 1000 * us);
  counted.note_leases(parked(5, 2), {2}, 2000 * us);
  counted.note_leases(parked(2, 7), {2}, 2000 * us);  // nobody reads them any more
  CHECK(counts.value(metric::deferred_release_total) == 5.0);
  CHECK(counts.value(metric::deferred_release_wait_seconds) == 0.0);
  const auto settle = [&](std::uint64_t step, std::int64_t at_us) {
    step_result result;
    result.step = {step};
    step_trace it;
    it.kind = "empty";
    it.settle_begin_ns = it.settle_end_ns = at_us * us;
    counted.note_settle(result, it, {});
  };
  settle(3, 2500);
  CHECK(counts.value(metric::deferred_release_wait_seconds) == 0.0);
  settle(4, 3000);
  CHECK(counts.value(metric::deferred_release_wait_seconds) == 1.0);
  settle(5, 6000);
  CHECK(counts.value(metric::deferred_release_wait_seconds) == 2.0);
  const auto text = counts.text();
  CHECK(text.find("deferred_release_wait_seconds_sum{model_name=\"\",engine=\"0\"} 0.006\n") !=
        std::string::npos);
}

TEST_CASE("ranks that count together add up, and a pause is no decode gap") {
  metrics counts;
  auto config = driven_rank::config();
  rank_metrics first(counts, config);
  config.rank = {4};
  rank_metrics second(counts, config);
  step_plan plan;
  plan.yields_max = {3, 1};
  plan.sources = {from_fresh, from_slot};
  step_trace it;
  for (auto* rank : {&first, &second}) {
    plan.step = {1};
    rank->note_launch(plan, it);
  }
  CHECK(counts.value(metric::inflight_steps) == 2.0);
  CHECK(counts.value(metric::inflight_tokens) == 8.0);
  CHECK(counts.value(metric::remap_total, {"slot"}) == 2.0);
  const auto settle = [&](std::uint64_t step, std::int64_t at_us, bool is_after_rest) {
    step_result result;
    result.step = {step};
    step_trace settled;
    settled.kind = "decode";
    settled.rows = 1;
    settled.is_after_rest = is_after_rest;
    settled.settle_end_ns = at_us * us;
    second.note_settle(result, settled, {});
  };
  settle(1, 100, true);
  settle(2, 300, false);
  settle(3, 90'000, true);
  CHECK(counts.value(metric::decode_gap_seconds_max, {"4"}) == doctest::Approx(200e-6));
  CHECK(counts.value(metric::decode_gap_seconds_max, {"3"}) == 0.0);
}

TEST_CASE("gauges of a node are refreshed from its stats") {
  metrics counts;
  node_stats stats;
  stats.queued = 2;
  stats.kv_blocks_total = 100;
  stats.kv_blocks_free = 40;
  stats.kv_blocks_cached = 10;
  stats.deferred_blocks = 5;
  stats.slots_free = 7;
  refresh(counts, stats);
  CHECK(counts.value(metric::kv_cache_usage_perc) == 0.5);
  CHECK(counts.value(metric::kv_held_blocks) == 45.0);
  CHECK(counts.value(metric::state_slots_free) == 7.0);
  counts.set(metric::num_requests_waiting, 9.0);
  refresh(counts, {});
  CHECK(counts.value(metric::num_requests_waiting) == 9.0);  // not a rank's to say
  CHECK(counts.value(metric::kv_cache_usage_perc) == 0.0);
}

namespace {

std::unique_ptr<node> load_tiny(const std::shared_ptr<metrics>& counts) {
  engine_settings settings;
  settings.engine.num_threads = 1;
  node_parts parts;
  parts.counts = counts;
  const std::string path = std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41";
  auto loaded = node::load(settings, path, {}, nullptr, std::move(parts));
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().message);
  return std::move(*loaded);
}

/// Looks again and again, until a minute has passed.
template <class Condition>
bool comes_true(const Condition& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes{1};
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return true;
}

}  // namespace

TEST_CASE("a node counts its steps, and its gauges are 0 when it rests") {
  const auto counts = std::make_shared<metrics>();
  const auto loaded = load_tiny(counts);
  const auto& engine = *loaded;
  const auto client = engine.connect();
  std::vector<stream> open;
  for (int i = 0; i < 4; ++i) {
    generate_request request;
    request.text = "Once there was";
    request.sampling.max_tokens = 20;
    request.sampling.ignore_eos = true;
    open.push_back(client.generate(request).value());
  }
  for (auto& chunks : open) test::read_answer(chunks, std::chrono::minutes{2});
  CHECK(counts->value(metric::ready, {"0"}) == 1.0);
  REQUIRE(engine.pause().value());  // what was launched has settled
  REQUIRE(client.stats().has_value());
  double steps = 0.0, durations = 0.0;
  for (const auto* kind : {"prefill", "decode", "mixed", "empty"}) {
    steps += counts->value(metric::steps_total, {kind});
    durations += counts->value(metric::step_duration_seconds, {kind});
  }
  CHECK(steps >= 20.0);
  CHECK(durations >= steps - 1.0);
  CHECK(counts->value(metric::plan_duration_seconds) == steps);
  CHECK(counts->value(metric::settle_duration_seconds) == steps);
  CHECK(counts->value(metric::iteration_tokens_total) == steps);
  CHECK(counts->value(metric::device_busy_seconds_total) > 0.0);
  CHECK(counts->value(metric::remap_total, {"row"}) > 0.0);
  for (const auto gauge : {metric::inflight_steps, metric::inflight_tokens, metric::leases_held,
                           metric::kv_reserved_blocks, metric::deferred_release_pending})
    CHECK(counts->value(gauge) == 0.0);
  loaded->stop();
  CHECK(counts->value(metric::ready, {"0"}) == 0.0);
}

TEST_CASE("a rank that dies leaves no step in flight behind, and is counted when it stays dead") {
  const auto counts = std::make_shared<metrics>();
  const auto loaded = load_tiny(counts);
  const auto& engine = *loaded;
  const auto client = engine.connect();
  generate_request request;
  request.text = "Once there was";
  request.sampling.max_tokens = 1000;
  request.sampling.ignore_eos = true;
  const auto is_up = [&] { return counts->value(metric::ready, {"0"}) == 1.0; };
  for (int deaths = 1; deaths <= 9; ++deaths) {
    REQUIRE(comes_true(is_up));
    CHECK(counts->value(metric::dead_ranks) == 0.0);
    auto chunks = client.generate(request).value();
    REQUIRE(chunks.next(std::chrono::minutes{1}).has_value());  // steps are in flight
    REQUIRE(engine.kill("worker").value());
    while (true) {
      const auto chunk = chunks.next(std::chrono::minutes{1});
      REQUIRE(chunk.has_value());
      if (!*chunk) break;
    }
  }
  CHECK(comes_true([&] { return counts->value(metric::dead_ranks) == 1.0; }));
  CHECK(counts->value(metric::ready, {"0"}) == 0.0);
  for (const auto gauge : {metric::inflight_steps, metric::inflight_tokens, metric::leases_held,
                           metric::kv_reserved_blocks, metric::deferred_release_pending})
    CHECK(counts->value(gauge) == 0.0);
}
