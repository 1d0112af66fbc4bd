#include "runtime/model/replay.hpp"

#include <fmt/core.h>

#include "kernels/step/keep_late.hpp"

namespace deepinfer {

result<std::int32_t> late_layer_of(const model_config& config) {
  std::int32_t late = -1;
  for (std::int32_t i = 0; i < config.layer_count; ++i)
    if (config.layers[static_cast<std::size_t>(i)].owns_rows) late = i;
  const auto refuse = [&late](std::int32_t layer, const char* what) {
    return fail(errc::invalid_argument,
                fmt::format("replay from layer {}: layer {} {}", late, layer, what));
  };
  if (late < 0) return refuse(late, "is none: no layer has a memory of its own");
  const auto& first = config.layers[static_cast<std::size_t>(late)];
  if (!first.owns_index_keys || !first.runs_indexer)
    return refuse(late, "does not choose its rows itself");
  for (std::int32_t i = 0; i < config.layer_count; ++i) {
    const auto& facts = config.layers[static_cast<std::size_t>(i)];
    if (i < late && facts.tap >= 0) return refuse(i, "is tapped by the drafter");
    if (i >= late && facts.engram >= 0) return refuse(i, "has an Engram table");
    if (i > late && facts.owns_index_keys) return refuse(i, "makes index keys");
    if (i >= late && facts.candidates == candidate_role::masked && config.candidate_source < late)
      return refuse(i, "searches the candidates of an earlier layer");
  }
  return late;
}

result<void> check_replay(const runner_config& runner, const model_config& config) {
  if (runner.replay == replay_mode::off) {
    if (runner.keep_tokens == 0) return {};
    return fail(
      errc::invalid_argument,
      fmt::format("replay_keep_tokens: found {}, expected 0 without replay", runner.keep_tokens));
  }
  if (runner.prefix_cache)
    return fail(errc::invalid_argument,
                "replay: found together with prefix_cache, whose resume points need the windows of "
                "all layers; expected one of the two");
  if (runner.keep_tokens < config.window)
    return fail(errc::invalid_argument,
                fmt::format("replay_keep_tokens: found {}, expected at least the window, {}",
                            runner.keep_tokens, config.window));
  DI_TRY([[maybe_unused]] const auto late, late_layer_of(config));
  return {};
}

late_tokens::late_tokens(std::int64_t tokens)
  : token(tokens),
    kept_at(tokens),
    slot(tokens),
    position(tokens),
    row_token(tokens),
    row_first(tokens),
    found(tokens) {}

step_tokens late_tokens::keep(const forward_context& context) {
  kernels::keep_late_args args;
  args.batch = context.step.batch;
  args.late_begin = context.state.late_begin.data();
  args.kept = context.step.kept_tokens;
  args.token = token.data();
  args.kept_at = kept_at.data();
  args.slot = slot.data();
  args.position = position.data();
  args.row_first_token = row_token.data();
  args.row_first_position = row_first.data();
  kernels::keep_late_ref(context.stream, args);
  auto step = context.step;
  step.batch.tokens = args.kept;
  step.batch.slot = args.slot;
  step.batch.position = args.position;
  step.batch.row_first_token = args.row_first_token;
  step.batch.row_first_position = args.row_first_position;
  step.token_id = nullptr;
  return step;
}

const std::int32_t* late_tokens::find(const std::int32_t* wanted, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) found[i] = wanted[i] < 0 ? -1 : kept_at[wanted[i]];
  return found.data();
}

}  // namespace deepinfer
