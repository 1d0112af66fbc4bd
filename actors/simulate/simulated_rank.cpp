#include "actors/simulate/simulated_rank.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

std::int32_t longest(std::span<const workload_request> workload) {
  std::int32_t out = 2;
  for (const auto& it : workload) out = std::max(out, it.prompt_tokens + it.output_tokens);
  return out;
}

hash_model_config simulated_model() {
  hash_model_config out;
  out.check = hash_check::last_block;  // a row's cost must not grow with its length
  return out;
}

std::vector<token_id> prompt_of(const hash_model_config& model, const workload_request& request,
                                std::uint32_t number) {
  auto out = hash_prompt(model, "group " + request.prefix_group, request.prefix_tokens);
  const auto own = hash_prompt(model, fmt::format("request {}", number),
                               request.prompt_tokens - request.prefix_tokens);
  out.insert(out.end(), own.begin(), own.end());
  return out;
}

}  // namespace

simulated_rank::simulated_rank(const simulation_settings& settings,
                               std::span<const workload_request> workload)
  : settings_(settings),
    workload_(workload),
    max_model_len_(longest(workload)),
    model_(simulated_model()),
    device_(
      {.phase_time = [this](step_id step, step_phase phase) { return phase_ns(step, phase); }}),
    runner_(std::make_shared<hash_runner>(runner_settings(), model_)) {}

scheduler_config simulated_rank::scheduler_settings() const {
  const auto& s = settings_;
  scheduler_config out;
  out.depth = out.max_depth = s.depth;
  out.num_drafts = s.num_drafts;
  out.max_num_seqs = s.max_num_seqs;
  out.max_num_batched_tokens = s.max_num_batched_tokens;
  out.chunk_size = s.chunk_size;
  out.max_model_len = max_model_len_;
  out.num_kv_blocks = s.num_kv_blocks;
  out.block_size = s.block_size;
  out.state_slots = s.max_num_seqs * s.depth;
  out.eos = hash_stop_id;
  out.vocab_size = model_.vocab;
  out.first_id = 1;
  out.mixed_steps = s.mixed_steps;
  out.prefix_cache = s.prefix_cache;
  out.max_queued = static_cast<std::int32_t>(std::max<std::size_t>(1, workload_.size()));
  out.policy = s.policy;
  return out;
}

runner_config simulated_rank::runner_settings() const {
  const auto scheduler = scheduler_settings();
  runner_config out;
  out.depth = scheduler.depth;
  out.num_drafts = scheduler.num_drafts;
  out.max_num_seqs = scheduler.max_num_seqs;
  out.state_slots = scheduler.state_slots;
  out.max_num_batched_tokens = scheduler.max_num_batched_tokens;
  out.max_model_len = scheduler.max_model_len;
  out.num_kv_blocks = scheduler.num_kv_blocks;
  out.block_size = scheduler.block_size;
  out.prefix_cache = scheduler.prefix_cache;
  return out;
}

rank_config simulated_rank::config() {
  rank_config out;
  out.scheduler = scheduler_settings();
  out.runner = runner_;
  out.on = &device_;
  out.watchdog = std::chrono::hours(24);  // a device that takes as long as it is told is never late
  out.trace_steps = 1;
  out.max_restarts = 0;
  out.hooks.pace = this;
  out.hooks.watch = this;
  out.hooks.yields_each_turn = true;
  return out;
}

sequence_request simulated_rank::make_request(std::uint32_t request) {
  const auto& it = workload_[request];
  sequence_request out;
  out.sequence = {std::uint64_t{request} + 1};
  auto prompt = prompt_of(model_, it, request);
  hash_script script;
  script.prompt = prompt;
  script.accept = draw_acceptance(settings_.acceptance, settings_.seed, request, it.output_tokens,
                                  settings_.num_drafts);
  runner_->register_script(out.sequence, std::move(script));
  out.prompt = std::make_shared<const std::vector<token_id>>(std::move(prompt));
  auto params = std::make_shared<sampling_params>();
  params->temperature = 0.0f;
  params->max_tokens = it.output_tokens;
  params->ignore_eos = true;
  out.params = std::move(params);
  out.priority = it.priority;
  return out;
}

void simulated_rank::on_start(const scheduler_core& core, const bubble_accountant& accountant) {
  core_ = &core;
  accountant_ = &accountant;
}

void simulated_rank::on_core_gone() {
  core_ = nullptr;
  accountant_ = nullptr;
}

void simulated_rank::on_launch(const step_plan& plan, const scheduler_core&) {
  timed_[plan.step.value % timed_.size()] = {plan.step, settings_.steps.forward_ns(plan)};
}

// What is published and settled may be read by others, so a write into it is an error.
void simulated_rank::on_outbox(const scheduler_outbox& box, const scheduler_core&) {
  const auto& told = box.want.publish;
  for (std::size_t i = 0; i < told.blocks.size(); ++i)
    if (told.pending[i].value == 0) runner_->note_shared(told.blocks[i], true);
}

// A block that comes back with its last reference and has no name is free: nobody may read it.
void simulated_rank::on_release(const kv_release& done, const kv_pool& pool) {
  returned_.clear();
  for (const auto block : done.blocks) ++returned_[block.value];
  std::vector<block_id> freed;
  for (const auto& [block, count] : returned_)
    if (pool.references({block}) == count && !pool.keeps({block})) freed.push_back({block});
  runner_->poison(freed, done.slots);
}

std::int64_t simulated_rank::phase_ns(step_id step, step_phase phase) const {
  const auto& model = settings_.steps;
  switch (phase) {
  case step_phase::forward: {
    const auto& timed = timed_[step.value % timed_.size()];
    DI_CHECK(timed.step == step, "step {} runs and step {} was launched", step.value,
             timed.step.value);
    return timed.forward_ns;
  }
  case step_phase::copy_in:
  case step_phase::copy_out: return model.copying_ns();
  case step_phase::sample: return model.sampling_ns();
  case step_phase::sample_gated: return 0;
  }
  return 0;
}

std::chrono::nanoseconds simulated_rank::plan(const step_plan&) {
  return std::chrono::nanoseconds(settings_.plan_ns);
}

std::chrono::nanoseconds simulated_rank::settle(const step_result&) {
  return std::chrono::nanoseconds(settings_.settle_ns);
}

}  // namespace deepinfer
