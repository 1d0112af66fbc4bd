/// One sequence at a time through a runner, planned by hand: where it starts, which blocks it has,
/// what its first step moves. Sampled with a seed and a penalty, so that its whole history counts.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "model_fixture.hpp"
#include "runtime/model/model_runner.hpp"

namespace deepinfer::test {

/// What the steps of a sequence gave, one entry per decode row, and their drafts.
struct answers {
  std::vector<ids> tokens, drafted;
  std::vector<float> logprobs;  ///< of all tokens and their best alternative
  bool operator==(const answers&) const = default;
};

/// `depth` steps are in flight while it decodes, rows as wide as the drafts allow.
class one_sequence {
public:
  one_sequence(model_runner& runner, ids prompt, std::int32_t slot, std::vector<block_id> blocks)
    : runner_(runner),
      prompt_(std::move(prompt)),
      slot_(slot),
      blocks_(std::move(blocks)) {}

  std::vector<block_move> moves;  ///< of its first step
  std::int32_t outputs = 0;       ///< of the prompt's last ids, so many are outputs already known

  /// From `first` on, in chunks, then `rows` decode rows.
  answers run(std::int32_t first, std::int32_t chunk, std::int32_t rows) {
    const auto prompt = static_cast<std::int32_t>(prompt_.size());
    first_ = first;
    for (auto at = first; at < prompt; at += chunk) {
      auto plan = start(at);
      const auto width = std::min(chunk, prompt - at);
      plan.kinds = {row_kind::prefill};
      plan.tokens.assign(prompt_.begin() + at, prompt_.begin() + at + width);
      add_row(plan, from_fresh, at, width);
      plan.yields_max = plan.yields_min = {at + width == prompt ? 1 : 0};
      launch(std::move(plan));
      settle();
    }
    for (std::int32_t row = 0; row < rows; ++row) {
      auto plan = start(plan_position(row));
      plan.kinds = {row_kind::decode};
      add_row(plan, from_slot, plan_position(row), 1 + drafts());
      plan.yields_max = {1 + drafts()};
      plan.yields_min = {1};
      launch(std::move(plan));
      if (std::ssize(open_) == runner_.config().depth) settle();
    }
    while (!open_.empty()) settle();
    return made_;
  }

private:
  std::int32_t drafts() const { return runner_.config().num_drafts; }
  std::int32_t plan_position(std::int32_t row) const {
    return static_cast<std::int32_t>(prompt_.size()) + row * (1 + drafts());
  }

  step_plan start(std::int32_t at) {
    step_plan plan;
    plan.clear();
    plan.step = step_id{++steps_};
    if (at != first_) return plan;
    auto& made = plan.starts.emplace_back();
    made.slot = slot_id{slot_};
    made.sequence = seq_id{7};
    made.prompt_tokens = static_cast<std::int32_t>(prompt_.size()) - outputs;
    made.outputs = outputs;
    made.position = first_;
    made.output_limit = 100;
    sampling_params params;
    params.temperature = 0.8f;
    params.seed = 99;
    params.repetition_penalty = 1.3f;
    params.ignore_eos = true;
    params.logprobs = 1;
    made.params = std::make_shared<const sampling_params>(params);
    plan.moves = moves;
    return plan;
  }

  void add_row(step_plan& plan, std::int32_t source, std::int32_t position, std::int32_t width) {
    plan.sequences = {seq_id{7}};
    plan.epochs = {0};
    plan.slots = {slot_id{slot_}};
    plan.sources = {source};
    plan.widths = {width};
    plan.positions = {position};
    plan.token_begin = {0, static_cast<std::int32_t>(plan.tokens.size())};
    plan.table_begin = {0};
    plan.gated = {0};
    if (!plan.starts.empty()) plan.blocks = blocks_;
    plan.block_begin = {0, static_cast<std::int32_t>(plan.blocks.size())};
    plan.total_width = width;
  }

  void launch(step_plan plan) {
    open_.push_back(runner_.stage(std::make_shared<const step_plan>(std::move(plan))));
    for (const auto phase :
         {step_phase::copy_in, step_phase::forward, step_phase::sample, step_phase::copy_out})
      REQUIRE(open_.back()->run(phase, inline_stream()).code == errc::ok);
  }

  void settle() {
    step_result result;
    runner_.collect(*open_.front(), result);
    open_.erase(open_.begin());
    REQUIRE(result.code == errc::ok);
    if (result.tokens.empty()) return;
    made_.tokens.push_back(result.tokens);
    made_.drafted.push_back(result.drafts);
    for (const auto& it : result.logprobs)
      made_.logprobs.insert(made_.logprobs.end(), it.logprobs.begin(), it.logprobs.end());
  }

  model_runner& runner_;
  const ids prompt_;
  const std::int32_t slot_;
  const std::vector<block_id> blocks_;
  std::vector<std::shared_ptr<device_work>> open_;
  std::int32_t first_ = 0;
  answers made_;
  static inline std::uint64_t steps_ = 0;
};

}  // namespace deepinfer::test
