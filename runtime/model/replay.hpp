/// Bounded replay: a prompt's tokens run through the late layers only where they are among its last
/// keep_tokens.
///
/// Late layers are the last one that makes a memory of its own and all behind it, drafter included:
/// that memory needs the early layers only, so it is made of every token, and nothing else of the
/// late layers outlives a prompt but the rows of their windows. Modes: `mask` computes every token,
/// but windows of late layers reach no further back than LEN - keep_tokens, LEN being the ids known
/// when the sequence (or its epoch) started; `compact` leaves out what no such window sees: kept
/// tokens have the same bits in both. A sequence's later tokens keep to the same bound.
///
/// What it costs in exactness: a kept token behind the cut sees a shorter window, and what that
/// changed travels on, layer by layer. The last token of a prompt is exact from
///   keep_tokens >= late layers * (window - 1) + 1
/// on. Below it, largest error of its logits over their largest magnitude, measured on the embedded
/// model (window 32, 3 late layers, 16 random prompts of 200 ids; tests/model/replay_test.cpp):
///   keep_tokens    32       48       64       80       94
///   error          2.4e-3   9.4e-4   2.9e-5   4e-7     0
///
/// Errors of late_layer_of: invalid_argument where the model's layers do not allow it.
/// Source: model-v41.md 17.
#pragma once

#include <cstdint>

#include "runtime/base/error.hpp"
#include "runtime/model/forward_context.hpp"
#include "runtime/model/lazy_array.hpp"
#include "runtime/model/model_config.hpp"

namespace deepinfer {

/// The first late layer. It must choose its memory rows itself, and neither Engram tables may come
/// after it nor the drafter's taps before.
result<std::int32_t> late_layer_of(const model_config& config);

/// Checks the settings of a replay against the model.
result<void> check_replay(const runner_config& runner, const model_config& config);

/// The kept tokens of a step, as a step of their own; device arrays.
struct late_tokens {
  late_tokens() = default;
  explicit late_tokens(std::int64_t tokens);

  /// Of `context`'s step, whose kept_tokens is their number.
  step_tokens keep(const forward_context& context);
  /// Where tokens of the whole step are among the kept ones, -1 if they are not; [count], valid
  /// until the next call.
  const std::int32_t* find(const std::int32_t* token, std::int64_t count);

  lazy_array<std::int32_t> token, kept_at, slot, position, row_token, row_first;  ///< [tokens]
  lazy_array<std::int32_t> found;                                                 ///< [tokens]
};

}  // namespace deepinfer
