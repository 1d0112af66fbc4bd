#include "runtime/model/model_runner.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/check.hpp"

namespace deepinfer {

result<std::unique_ptr<model_runner>>
model_runner::make(std::shared_ptr<const model_weights> weights, const runner_config& config) {
  DI_TRY_VOID(check_drafter(config, weights->config));
  DI_TRY(auto layout,
         make_kv_layout(weights->config, config, config.drafter == drafter_kind::dspark));
  return std::unique_ptr<model_runner>(
    new model_runner(std::move(weights), std::move(layout), config));
}

model_runner::model_runner(std::shared_ptr<const model_weights> weights, kv_layout layout,
                           const runner_config& config)
  : device_(std::move(weights), std::move(layout), config),
    lists_(static_cast<std::size_t>(config.state_slots)),
    late_begin_(config.replay == replay_mode::off ? 0 : lists_.size()) {
  for (std::int32_t i = 0; i < config.depth + 1; ++i)
    ring_.push_back(std::make_shared<step_program>(device_));
}

kernels::slot_sampling model_runner::sampling_of(const slot_start& start) {
  DI_CHECK(start.params, "sequence {} starts without sampling parameters", start.sequence.value);
  const auto& params = *start.params;
  auto& lists = lists_[static_cast<std::size_t>(start.slot.value)];
  lists.bias.clear();
  for (const auto& [id, bias] : params.logit_bias) lists.bias.push_back({id, bias});
  lists.stop_ids = params.stop_token_ids;
  if (!params.ignore_eos) {
    const auto& eos = device_.model.config().eos_tokens;
    lists.stop_ids.insert(lists.stop_ids.end(), eos.begin(), eos.end());
  }

  kernels::slot_sampling made;
  made.temperature = params.temperature;
  made.top_p = params.top_p;
  made.min_p = params.min_p;
  made.top_k = params.top_k;
  made.presence_penalty = params.presence_penalty;
  made.frequency_penalty = params.frequency_penalty;
  made.repetition_penalty = params.repetition_penalty;
  made.logprobs = params.logprobs;
  made.seed = params.seed;
  made.prompt_tokens = start.prompt_tokens;
  made.min_tokens = params.min_tokens;
  made.output_limit = start.output_limit;
  made.stop_count = static_cast<std::int32_t>(lists.stop_ids.size());
  for (std::int32_t i = 0; i < std::min(made.stop_count, made.inline_stop_ids); ++i)
    made.stop_ids[i] = lists.stop_ids[static_cast<std::size_t>(i)];
  if (made.stop_count > made.inline_stop_ids)
    made.more_stop_ids = lists.stop_ids.data() + made.inline_stop_ids;
  made.bias_count = static_cast<std::int32_t>(lists.bias.size());
  made.bias = lists.bias.data();
  return made;
}

void model_runner::bound_replay(const step_plan& plan, step_inputs& inputs) {
  for (const auto& start : plan.starts) {
    const auto known = start.prompt_tokens + start.outputs;
    auto& begin = late_begin_[static_cast<std::size_t>(start.slot.value)];
    begin = std::max(0, known - device_.config.keep_tokens);
    inputs.start_late.put(begin);
  }
  inputs.kept_tokens = -1;
  if (device_.config.replay != replay_mode::compact) return;
  auto kept = plan.total_width;
  for (std::int32_t row = 0; row < plan.rows(); ++row) {
    const auto i = static_cast<std::size_t>(row);
    if (plan.kinds[i] != row_kind::prefill) continue;  // decode rows stand behind what is known
    const auto begin = late_begin_[static_cast<std::size_t>(plan.slots[i].value)];
    kept -= std::clamp(begin - plan.positions[i], 0, plan.widths[i]);
  }
  if (kept < plan.total_width) inputs.kept_tokens = kept;
}

std::shared_ptr<device_work> model_runner::stage(std::shared_ptr<const step_plan> plan) {
  auto& program = ring_[staged_++ % ring_.size()];
  // Somebody still holds a program whose step was given up: it may yet run, so leave it alone.
  if (program.use_count() > 1) program = std::make_shared<step_program>(device_);
  program->stage(std::move(plan), newest_);
  for (const auto& start : program->plan().starts)
    program->inputs().start_sampling.put(sampling_of(start));
  if (!late_begin_.empty()) bound_replay(program->plan(), program->inputs());
  newest_ = program->after();
  return program;
}

void model_runner::set_masks(device_work& work, std::shared_ptr<const sample_gate> masks) {
  ring_[program_index(work)]->set_masks(std::move(masks));
}

void model_runner::collect(const device_work& work, step_result& out) {
  auto& program = *ring_[program_index(work)];
  program.collect(out);
  program.forget();
}

std::size_t model_runner::program_index(const device_work& work) const {
  for (std::size_t i = 0; i < ring_.size(); ++i)
    if (ring_[i].get() == &work) return i;
  DI_CHECK(false, "step {} was not staged here", work.step().value);
  return 0;
}

void model_runner::reset() {
  device_.kv.forget_all();
  for (auto& program : ring_) program->forget();
  newest_.reset();
}

void model_runner::poison(std::span<const block_id> blocks, std::span<const slot_id> slots) {
  device_.kv.poison(blocks, slots);
  constexpr auto nan = std::numeric_limits<float>::quiet_NaN();
  auto& carried = device_.carried;
  for (const auto slot : slots) {
    const std::int64_t drafts = carried.drafts_max;
    carried.is_alive[slot.value] = carried.draft_count[slot.value] = -1;
    std::fill_n(carried.drafts.data() + slot.value * drafts, drafts, -1);
    std::fill_n(carried.confidence.data() + slot.value * drafts, drafts, nan);
  }
}

}  // namespace deepinfer
