#include "tests/actors/random_world.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "tests/support/seeded_draws.hpp"

namespace deepinfer::test {

namespace {

/// One world in the making.
class world_maker {
public:
  explicit world_maker(std::uint64_t seed) : draw_(seed), is_tight_(seed % 2 == 0) {
    out_.path = out_.name = fmt::format("random-world-{}", seed);
    out_.seed = seed;
  }

  scenario make() {
    make_engine();
    make_policy();
    make_device();
    make_requests();
    make_script();
    return std::move(out_);
  }

private:
  std::vector<std::int32_t> accept_pattern() {
    std::vector<std::int32_t> pattern;
    for (auto rows = draw_.between(1, 4); rows > 0; --rows)
      pattern.push_back(draw_.below(out_.engine.num_drafts + 1));
    return pattern;
  }

  void make_engine() {
    auto& e = out_.engine;
    e.depth = draw_.between(1, 3);
    e.block_size = draw_.between(1, 6);
    e.max_num_seqs = draw_.between(8, 12);
    e.state_slots = draw_.one_in(2) ? 0 : e.max_num_seqs + draw_.below(4);
    e.num_drafts = draw_.one_in(2) ? draw_.between(1, 4) : 0;
    e.draft_overhang = e.num_drafts > 0 && draw_.one_in(2) ? draw_.between(1, 3) : 0;
    e.max_num_batched_tokens = draw_.between(8, 60) + e.max_num_seqs * (1 + e.num_drafts);
    e.chunk_size = draw_.one_in(2) ? 0 : draw_.between(2, 16);
    e.max_model_len = draw_.between(48, 96);
    e.prefix_cache = !draw_.one_in(4);
    e.mixed_steps = draw_.one_in(2);
    e.stop_mask = draw_.one_in(3);
    e.draft_trim =
      draw_.one_in(2) ? scenario_draft_trim::max_tokens : scenario_draft_trim::length_limit;
    // A sequence in the middle of its life has about 30 tokens.
    const auto wanted = e.max_num_seqs * (30 + e.depth * (1 + e.num_drafts)) / e.block_size;
    e.num_kv_blocks = is_tight_ ? wanted * draw_.between(55, 90) / 100 : wanted * 3;
    out_.model.seed = static_cast<std::uint64_t>(draw_.below(1 << 30));
    if (e.num_drafts > 0) out_.model.accept = accept_pattern();
    make_verify();
  }

  void make_verify() {
    auto& e = out_.engine;
    if (e.num_drafts == 0 || !draw_.one_in(4)) return;
    e.verify = scenario_verify::confidence;
    const auto widest = e.max_num_seqs * (1 + e.num_drafts);
    e.verify_curve_us = {{1, 1000}, {widest / 2, 1500}, {widest, 1500 + draw_.below(4000)}};
    for (std::int32_t i = 0; i < e.num_drafts; ++i)
      out_.model.confidence.push_back(0.1 * draw_.between(1, 10));
  }

  scenario_policy random_policy() {
    scenario_policy policy;
    policy.victim = static_cast<scenario_victim>(draw_.below(4));
    policy.preempt_output = static_cast<scenario_preempt_output>(draw_.below(2));
    policy.on_step_failure = static_cast<scenario_step_failure>(draw_.below(2));
    policy.priority_preempts = draw_.one_in(3);
    return policy;
  }

  void make_policy() {
    out_.engine.policy = random_policy();
    out_.engine.vote.min_decode_gap = draw_.one_in(3) ? draw_.below(4) : 0;
  }

  void make_device() {
    auto& device = out_.device;
    device.step_time_us = draw_.between(500, 3000);
    device.copy_in_us = draw_.below(200);
    device.sample_us = draw_.below(300);
    device.copy_out_us = draw_.below(200);
    device.plan_time_us = draw_.one_in(2) ? draw_.below(400) : 0;
    device.settle_time_us = draw_.one_in(2) ? draw_.below(400) : 0;
    device.jitter_us = draw_.one_in(2) ? draw_.below(1500) : 0;
    if (!draw_.one_in(2)) return;
    // Every second failure comes while steps behind the one before are still in flight, or not much
    // later.
    std::int32_t step = draw_.between(1, 80);
    for (auto faults = draw_.between(1, 6); faults > 0; --faults) {
      constexpr scenario_phase phases[] = {scenario_phase::copy_in, scenario_phase::forward,
                                           scenario_phase::sample, scenario_phase::copy_out};
      device.faults.push_back({phases[draw_.below(4)], step, {}, scenario_fault_kind::fail, 1});
      step += draw_.one_in(2) ? draw_.between(1, 5) : draw_.between(20, 120);
    }
  }

  void make_requests() {
    const auto texts = draw_.between(1, 6);
    const auto shares = out_.engine.prefix_cache && !draw_.one_in(4);
    for (std::int32_t i = 0; i < requests; ++i) {
      auto& it = out_.requests.emplace_back();
      it.id = fmt::format("r{}", i);
      it.prompt = shares ? fmt::format("shared-{}", draw_.below(texts)) : it.id;
      it.prompt_tokens = draw_.between(1, 32);
      it.max_tokens = draw_.one_in(8) ? 100 : draw_.between(1, 40);
      it.min_tokens = draw_.one_in(5) ? draw_.below(6) : 0;
      it.stop_after = draw_.one_in(3) ? draw_.between(1, 30) : 0;
      if (draw_.one_in(4)) it.stop_ids = {draw_.between(16, 999), draw_.between(16, 999)};
      if (draw_.one_in(5)) it.tokens[draw_.between(1, 20)] = draw_.between(16, 999);
      if (out_.engine.num_drafts > 0 && draw_.one_in(3)) it.accept = accept_pattern();
      if (draw_.one_in(3)) it.sample_seed = static_cast<std::uint64_t>(draw_.below(1000));
      it.penalty = draw_.one_in(6);
      it.logprobs = draw_.one_in(6);
      it.priority = draw_.one_in(3) ? draw_.between(-1, 1) : 0;
      if (draw_.one_in(12))
        it.grammar = {draw_.one_in(2) ? draw_.between(1, 12) : 0, 0, draw_.below(3000)};
    }
  }

  void add(scenario_when when, scenario_verb verb) {
    out_.actions.push_back({out_.name, std::move(when), std::move(verb)});
  }

  /// A moment in the life of a request, or not long before it.
  scenario_when moment_of(std::int32_t request, std::int64_t arrives_us) {
    if (draw_.one_in(3)) return {arrives_us + draw_.below(30'000), {}};
    if (draw_.one_in(3))
      return {{}, scenario_event{scenario_event_kind::chunk_launched, request, 0, 1}};
    return {{}, scenario_event{scenario_event_kind::token, request, 0, draw_.between(1, 15)}};
  }

  void make_script() {
    const auto step_us = static_cast<std::int32_t>(out_.device.step_time_us);
    std::int32_t us = 0;
    for (std::int32_t i = 0; i < requests; ++i) {
      add({us, {}}, submit_verb{i, 1, 0});
      if (draw_.one_in(7)) add(moment_of(i, us), abort_verb{{i}, {}});
      if (draw_.one_in(8)) add(moment_of(i, us), preempt_verb{{i}});
      if (i >= 16 && !draw_.one_in(3)) us += draw_.below(2 * step_us);
    }
    for (auto orders = draw_.one_in(2) ? draw_.between(1, 10) : 0; orders > 0; --orders)
      give_order(draw_.below(us + 100'000));
    if (draw_.one_in(20)) add({us + draw_.below(50'000), {}}, drain_verb{});
  }

  void give_order(std::int32_t us) {
    set_verb set;
    switch (draw_.below(6)) {
    case 0: add({us, {}}, flush_verb{draw_.one_in(2)}); return;
    case 1:
      add({us, {}}, pause_verb{});
      add({us + draw_.below(5'000), {}}, resume_verb{});
      return;
    case 2:
      set.policy = random_policy();
      // The log does not tell the judge what becomes of rows in flight from now on.
      set.policy->preempt_output = out_.engine.policy.preempt_output;
      break;
    default: set.depth = draw_.between(1, out_.engine.depth);
    }
    add({us, {}}, set);
  }

  static constexpr std::int32_t requests = 150;
  seeded_draws draw_;
  bool is_tight_;
  scenario out_;
};

/// What is known of a request on the way through the log.
struct request_life {
  std::int32_t in_flight = 0;  ///< launched rows that have not settled
  bool is_started = false;
  bool is_over = false;
  bool gave_up = false;  ///< its blocks, while rows were in flight
};

class counting {
public:
  counting(const audit_log& log, world_counts& out)
    : log_(log),
      out_(out),
      lives_(log.requests()) {}

  void run() {
    ++out_.worlds;
    for (const auto& entry : log_.entries()) take(entry);
  }

private:
  request_life& life_of(std::int32_t request) { return lives_[static_cast<std::size_t>(request)]; }

  void take(const audit_entry& entry) {
    switch (entry.kind) {
    case audit_kind::submitted: ++out_.requests; break;
    case audit_kind::launched: launch(log_.steps()[entry.index]); break;
    case audit_kind::settled:
      if (entry.index != no_index) settle(log_.steps()[entry.index]);
      break;
    case audit_kind::finished: finish(entry); break;
    case audit_kind::happened:
      if (entry.what != scenario_event_kind::preempted) break;
      ++out_.preemptions;
      life_of(entry.request).gave_up = life_of(entry.request).in_flight > 0;
      break;
    case audit_kind::held: hold(entry); break;
    case audit_kind::let_go: let_go(entry); break;
    default: break;
    }
  }

  void launch(const audit_step& step) {
    ++out_.steps;
    out_.rows += step.rows;
    for (const auto& row : log_.rows(step)) {
      auto& life = life_of(row.request);
      live_ += !life.is_started;
      life.is_started = true;
      ++life.in_flight;
    }
    out_.live += live_;
  }

  void settle(const audit_step& step) {
    out_.failed_steps += step.has_failed;
    for (const auto& row : log_.rows(step)) {
      auto& life = life_of(row.request);
      --life.in_flight;
      out_.overruns += life.is_over;
    }
  }

  void finish(const audit_entry& entry) {
    auto& life = life_of(entry.request);
    const auto& final = log_.final_of(entry);
    live_ -= life.is_started;
    life.is_over = true;
    life.gave_up = life.gave_up || life.in_flight > 0;
    out_.hits += final.usage.cached_tokens > 0;
    out_.aborts += final.finish == scenario_finish::abort;
    out_.stopped += final.finish == scenario_finish::stop;
    out_.by_length += final.finish == scenario_finish::length;
    out_.without_room += final.finish == scenario_finish::resource;
  }

  void hold(const audit_entry& entry) {
    life_of(entry.request).gave_up = life_of(entry.request).is_over;
    for (const auto block : log_.blocks_of(entry)) {
      const auto found = std::find(deferred_.begin(), deferred_.end(), block);
      if (found == deferred_.end()) continue;
      deferred_.erase(found);
      ++out_.reuses;
    }
  }

  void let_go(const audit_entry& entry) {
    if (!life_of(entry.request).gave_up) return;
    for (const auto block : log_.blocks_of(entry)) {
      if (std::find(deferred_.begin(), deferred_.end(), block) != deferred_.end()) continue;
      deferred_.push_back(block);
      ++out_.deferred;
    }
  }

  const audit_log& log_;
  world_counts& out_;
  std::vector<request_life> lives_;
  std::vector<block_id> deferred_;  ///< free since a fence has settled, not taken again yet
  std::int64_t live_ = 0;
};

}  // namespace

scenario random_world(std::uint64_t seed) {
  return world_maker(seed).make();
}

void world_counts::add(const audit_log& log) {
  counting(log, *this).run();
}

std::string world_counts::text() const {
  const auto mean =
    static_cast<double>(live) / static_cast<double>(std::max<std::int64_t>(1, steps));
  return fmt::format(
    "{} worlds, {} virtual steps, {} rows, {:.1f} live sequences in the mean; {} requests: {} "
    "stopped, {} by length, {} aborted, {} without room, {} with a prefix hit; {} preemptions, {} "
    "failed steps, {} over-run rows; {} blocks released behind a fence, {} of them taken again",
    worlds, steps, rows, mean, requests, stopped, by_length, aborts, without_room, hits,
    preemptions, failed_steps, overruns, deferred, reuses);
}

}  // namespace deepinfer::test
