#include "actors/scenario/world_rank.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/base/check.hpp"
#include "runtime/base/random.hpp"
#include "runtime/device/step_launch.hpp"

namespace deepinfer {

namespace {

constexpr std::int64_t ns_per_us = 1000;

std::optional<step_phase> device_phase(scenario_phase phase) {
  switch (phase) {
  case scenario_phase::copy_in: return step_phase::copy_in;
  case scenario_phase::forward: return step_phase::forward;
  case scenario_phase::sample: return step_phase::sample;
  case scenario_phase::copy_out: return step_phase::copy_out;
  default: return std::nullopt;
  }
}

virtual_device_config device_of(const scenario_device& device, std::int32_t rank,
                                std::uint64_t interleaving) {
  virtual_device_config out;
  const auto ns = [](std::int64_t us) { return us * ns_per_us; };
  out.phase_ns = {ns(device.copy_in_us), ns(device.step_time_us), ns(device.sample_us),
                  ns(device.sample_us), ns(device.copy_out_us)};
  out.jitter_ns = ns(device.jitter_us);
  out.jitter_seed = interleaving;
  for (const auto& it : device.delays)
    if (const auto phase = device_phase(it.phase); phase && it.rank.value_or(rank) == rank)
      out.delays.push_back({static_cast<std::uint64_t>(it.step.value_or(0)), *phase, ns(it.by_us)});
  for (const auto& it : device.faults)
    if (const auto phase = device_phase(it.phase); phase && it.rank.value_or(rank) == rank)
      out.faults.push_back({static_cast<std::uint64_t>(it.step.value_or(1)), *phase,
                            static_cast<fault_kind>(it.kind), it.times});
  return out;
}

static_assert(static_cast<int>(scenario_fault_kind::lose) == static_cast<int>(fault_kind::lose));

hash_model_config model_of(const scenario_model& model) {
  hash_model_config out;
  out.vocab = model.vocab;
  out.seed = model.seed;
  out.accept = model.accept;
  out.confidence.assign(model.confidence.begin(), model.confidence.end());
  out.window = model.window;
  out.ratio = model.ratio;
  if (model.experts)
    out.experts = {model.experts->layers, model.experts->experts, model.experts->top_k,
                   model.experts->picks};
  return out;
}

runner_config runner_of(const scheduler_config& scheduler, const scenario_engine& engine) {
  runner_config out;
  out.depth = scheduler.max_depth;
  out.num_drafts = engine.num_drafts;
  out.draft_overhang = engine.draft_overhang;
  out.max_num_seqs = engine.max_num_seqs;
  out.state_slots = scheduler.state_slots;
  out.max_num_batched_tokens = engine.max_num_batched_tokens;
  out.max_model_len = engine.max_model_len;
  out.num_kv_blocks = scheduler.num_kv_blocks;
  out.block_size = engine.block_size;
  out.stop_mask = engine.stop_mask;
  out.prefix_cache = engine.prefix_cache;
  return out;
}

class hash_texts final : public token_texts {
public:
  explicit hash_texts(std::int32_t vocab) {
    for (token_id id = 0; id < vocab; ++id) texts_.push_back(hash_text(id));
  }
  std::string_view bytes(token_id token) const override {
    return texts_.at(static_cast<std::size_t>(token));
  }

private:
  std::vector<std::string> texts_;
};

/// The grammar of the hash model behind the product's interface.
class hash_matcher final : public grammar_matcher {
public:
  hash_matcher(hash_grammar grammar, std::int32_t vocab)
    : grammar_(grammar),
      vocab_(vocab),
      states_{hash_grammar_state::at_start(false)} {}

  bool fill_mask(std::span<std::uint32_t> words) override {
    return hash_fill_mask(grammar_, states_.back(), vocab_, words);
  }
  bool advance(token_id token) override {
    if (!hash_allows(grammar_, states_.back(), token)) return false;
    auto next = states_.back();
    next.add(token);
    states_.push_back(next);
    return true;
  }
  void rewind(std::int32_t ids) override {
    states_.resize(states_.size() - static_cast<std::size_t>(ids));
  }
  // The end id is a word of this grammar like any other.
  bool has_ended() const override { return false; }

private:
  hash_grammar grammar_;
  std::int32_t vocab_;
  std::vector<hash_grammar_state> states_;
};

/// Does somebody wait for the watchdog alone?
bool loses_messages(const scenario& of, const scenario_case& it) {
  return std::any_of(it.device.faults.begin(), it.device.faults.end(),
                     [](const auto& fault) { return fault.kind == scenario_fault_kind::lose; }) ||
         std::any_of(of.actions.begin(), of.actions.end(), [](const scenario_action& action) {
           return std::holds_alternative<deliver_verb>(action.verb);
         });
}

}  // namespace

played_rank::played_rank(const scenario& of, const scenario_case& it, std::int32_t rank,
                         std::int32_t interleaving, audit_log& log,
                         std::function<void(std::int32_t, std::int64_t)> wake_at)
  : of_(of),
    it_(it),
    rank_(rank),
    interleaving_(static_cast<std::uint64_t>(interleaving)),
    log_(log),
    wake_at_(std::move(wake_at)),
    device_(device_of(it.device, rank, interleaving_)),
    texts_(std::make_unique<hash_texts>(it.model.vocab)),
    policy_(policy_of(it.engine.policy, it.engine.vote)),
    may_lose_(loses_messages(of, it)),
    names_(it.engine.block_size) {
  const auto scheduler = deepinfer::scheduler_config_of(of, it, rank);
  runner_ = std::make_shared<hash_runner>(runner_of(scheduler, it.engine), model_of(it.model));
  if (it.engine.warm_up) warm_up();
}

played_rank::~played_rank() = default;

// Every bucket once, with rows of nobody, before the first request and outside of its time.
void played_rank::warm_up() {
  virtual_device alone;
  std::uint64_t step = 0;
  for (const auto bucket : it_.engine.graph_buckets) {
    auto plan = std::make_shared<step_plan>();
    plan->clear();
    plan->step = {++step};
    plan->kind = step_kind::decode;
    plan->bucket = bucket;
    auto work = runner_->stage(plan);
    const auto launched = launch_step(
      alone, work, ticket{step}, [](void*, ticket, device_status, const phase_times&) {}, nullptr);
    DI_CHECK(launched.has_value(), "warm-up of bucket {}: {}", bucket, launched.error().message);
    alone.run_until_idle();
    step_result done;
    runner_->collect(*work, done);
  }
  runner_->reset();
}

rank_config played_rank::config() {
  rank_config out;
  out.scheduler = deepinfer::scheduler_config_of(of_, it_, rank_);
  out.scheduler.policy = policy_;
  out.runner = runner_;
  out.on = &device_;
  out.texts = texts_.get();
  out.watchdog = std::chrono::microseconds(it_.engine.watchdog_us);
  out.hooks.pace = this;
  out.hooks.watch = this;
  out.hooks.grammars = this;
  out.hooks.yields_each_turn = true;
  if (it_.engine.verify == scenario_verify::confidence) {
    std::vector<verify_sizer::measured_size> curve;
    for (const auto& [tokens, us] : it_.engine.verify_curve_us)
      curve.push_back({tokens, static_cast<double>(us)});
    out.sizer = std::make_shared<verify_sizer>(std::move(curve), it_.engine.max_num_seqs,
                                               it_.engine.num_drafts,
                                               static_cast<double>(it_.device.sample_us));
  }
  return out;
}

void played_rank::set_policy(const scenario_policy& policy, const scenario_vote& vote) {
  policy_ = policy_of(policy, vote);
}

void played_rank::on_core_gone() {
  core_ = nullptr;
  accountant_ = nullptr;
  suspects_.clear();
  launched_ns_.clear();
  names_.forget();
  for (const auto& [request, blocks] : held_)
    if (!blocks.empty()) log_.let_go(now_us(), rank_, request, blocks);
  held_.clear();
}

void played_rank::on_start(const scheduler_core& core, const bubble_accountant& accountant) {
  core_ = &core;
  accountant_ = &accountant;
}

// Told whenever the log goes on: the core says it only later, with all else that has gathered, and
// what comes before a plan, a launch or a settle must not be told behind it.
void played_rank::log_preempted(const scheduler_outbox& box) {
  for (; preempted_logged_ < box.preempted.size(); ++preempted_logged_)
    log_.happened(now_us(), scenario_event_kind::preempted,
                  request_of(box.preempted[preempted_logged_].sequence));
}

void played_rank::on_launch(const step_plan& plan, const scheduler_core& core) {
  log_preempted(core.gathered());
  launched_ns_[plan.step] = device_.now_ns();
  names_.launched(plan);
  for (const auto& start : plan.starts)
    if (start.epoch > 0)
      log_.happened(now_us(), scenario_event_kind::resumed, request_of(start.sequence));
  std::vector<audit_row> rows;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const auto request = request_of(plan.sequences[i]);
    audit_row row;
    row.request = request;
    row.epoch = plan.epochs[i];
    row.kind = plan.kinds[i];
    row.width = plan.widths[i];
    row.position = plan.positions[i];
    row.source = plan.sources[i];
    row.yields_min = plan.yields_min[i];
    row.yields_max = plan.yields_max[i];
    row.is_gated = plan.gated[i] != 0;
    row.table_blocks = plan.table_begin[i] + plan.block_begin[i + 1] - plan.block_begin[i];
    const auto blocks = plan.row_blocks(static_cast<std::int32_t>(i));
    row.added.assign(blocks.begin(), blocks.end());
    rows.push_back(std::move(row));
    if (blocks.empty()) continue;
    auto& held = held_[request];
    std::vector<block_id> added;
    for (const auto block : blocks)
      if (std::find(held.begin(), held.end(), block) == held.end()) added.push_back(block);
    held.insert(held.end(), added.begin(), added.end());
    if (!added.empty()) log_.held(now_us(), rank_, request, added);
  }
  log_.launched(now_us(), rank_, static_cast<std::int64_t>(plan.step.value), plan.kind,
                plan.total_width, plan.bucket, rows);
}

void played_rank::on_host_wait(step_id step) {
  log_.waited(now_us(), rank_, static_cast<std::int64_t>(step.value));
}

void played_rank::on_settle(const step_result& done, const scheduler_core& core) {
  log_preempted(core.gathered());
  const auto step = static_cast<std::int64_t>(done.step.value);
  launched_ns_.erase(done.step);
  names_.settled(done);
  const bool has_failed = done.code != errc::ok;
  has_suspect_ = has_suspect_ || done.code == errc::deadline_exceeded;
  std::vector<audit_row_result> results;
  for (std::size_t i = 0; !has_failed && i < done.sequences.size(); ++i)
    results.push_back(
      {done.widths.empty() ? 0 : done.widths[i], done.token_begin[i + 1] - done.token_begin[i]});
  log_.settled(now_us(), rank_, step, has_failed, results, done.tokens);
  const auto index = log_.step_index(rank_, step);
  if (has_failed || index == no_index) return;
  if (log_.steps()[index].kind != step_kind::decode || done.sequences.empty()) return;
  if (last_decode_us_ >= 0) decode_gap_us_ = std::max(decode_gap_us_, now_us() - last_decode_us_);
  last_decode_us_ = now_us();
}

// The virtual clock begins at 0, which in a trace means that it did not run.
void played_rank::on_traced(const step_trace& step) {
  auto& it = traces_.emplace_back(step);
  for (auto* ns : {&it.plan_begin_ns, &it.plan_end_ns}) *ns = std::max<std::int64_t>(*ns, 1);
  for (std::size_t i = 0; i < it.device.begin_ns.size(); ++i)
    if (it.device.begin_ns[i] == 0 && it.device.end_ns[i] > 0) it.device.begin_ns[i] = 1;
}

void played_rank::on_outbox(const scheduler_outbox& box, const scheduler_core&) {
  log_preempted(box);
  preempted_logged_ = 0;
  names_.told(box.want);
  const auto& told = box.want.publish;
  for (std::size_t i = 0; i < told.blocks.size(); ++i)
    if (told.pending[i].value == 0) runner_->note_shared(told.blocks[i], true);
}

// A block that comes back without a name, and with its last reference, is free from now on.
void played_rank::on_release(const kv_release& done, const kv_pool& pool) {
  std::map<std::int32_t, std::int32_t> gone;
  for (const auto block : done.blocks) ++gone[block.value];
  std::vector<block_id> freed;
  for (const auto& [block, count] : gone)
    if (pool.references({block}) == count && !pool.keeps({block})) freed.push_back({block});
  runner_->poison(freed, done.slots);
  names_.freed(freed);
  for (auto& [request, held] : held_) {
    const auto* sequence = core_ ? core_->find(sequence_of(request)) : nullptr;
    std::vector<block_id> left;
    std::erase_if(held, [&](block_id block) {
      if (!gone.contains(block.value)) return false;
      const auto mine = sequence ? sequence->lease.blocks() : std::span<const block_id>{};
      if (std::find(mine.begin(), mine.end(), block) != mine.end()) return false;
      left.push_back(block);
      return true;
    });
    if (!left.empty()) log_.let_go(now_us(), rank_, request, left);
  }
}

void played_rank::on_pool(const kv_pool& pool) {
  pool_ = &pool;
}

std::int64_t played_rank::host_ns(scenario_phase phase, std::int64_t us, step_id step) {
  for (const auto& it : it_.device.delays)
    if (it.phase == phase && it.rank.value_or(rank_) == rank_ &&
        (!it.step || *it.step == static_cast<std::int64_t>(step.value)))
      us += it.by_us;
  auto ns = us * ns_per_us;
  if (interleaving_ > 0 && it_.device.jitter_us > 0) {
    const auto draw =
      split_mix64(interleaving_ * 7919 + step.value * 31 + static_cast<std::uint64_t>(phase));
    ns += static_cast<std::int64_t>(
      draw % static_cast<std::uint64_t>(it_.device.jitter_us * ns_per_us + 1));
  }
  busy_until_ns_ = device_.now_ns() + ns;
  return ns;
}

std::chrono::nanoseconds played_rank::plan(const step_plan& plan) {
  log_preempted(core_->gathered());
  log_.planned(rank_, static_cast<std::int64_t>(plan.step.value));
  return std::chrono::nanoseconds(
    host_ns(scenario_phase::plan, it_.device.plan_time_us, plan.step));
}

std::chrono::nanoseconds played_rank::settle(const step_result& result) {
  return std::chrono::nanoseconds(
    host_ns(scenario_phase::settle, it_.device.settle_time_us, result.step));
}

std::unique_ptr<grammar_matcher> played_rank::poll(seq_id sequence, const sampling_params&,
                                                   std::string&) {
  const auto request = request_of(sequence);
  const auto& grammar = *of_.requests[static_cast<std::size_t>(request)].grammar;
  const auto ready = submitted_us_.at(request) + grammar.build_time_us;
  if (now_us() < ready) {
    wake_at_(rank_, ready);
    return nullptr;
  }
  return std::make_unique<hash_matcher>(hash_grammar{grammar.ends_after, grammar.dead_end_at},
                                        it_.model.vocab);
}

}  // namespace deepinfer
