/// How the tokens of the sequence in one device slot are chosen: plain data, one per slot, written
/// once when an epoch of the sequence starts and then only read.
///
/// Nothing in it moves while the sequence grows. How many outputs there were before a token follows
/// from the token's position: position - prompt_tokens. So rows that over-run, rewind or skip a
/// step need no repair [I42]. The pointed-to lists belong to the writer and outlive the epoch's
/// last row.
/// Listed ids outside the vocabulary have no effect.
/// Source: architecture 4, "Order of sampling".
#pragma once

#include <cstdint>

namespace deepinfer::kernels {

/// Below this temperature the choice is the plain argmax.
inline constexpr float greedy_temperature = 1e-5f;

struct token_bias {
  std::int32_t id = 0;
  float bias = 0;  ///< added to the logit
};

struct slot_sampling {
  static constexpr std::int32_t inline_stop_ids = 8;

  float temperature = 0;         ///< below greedy_temperature: argmax
  float top_p = 1;               ///< (0, 1]; >= 1: off
  float min_p = 0;               ///< [0, 1]; 0: off
  std::int32_t top_k = 0;        ///< <= 0: off
  float presence_penalty = 0;    ///< subtracted once from every output id
  float frequency_penalty = 0;   ///< subtracted once per occurrence among the outputs
  float repetition_penalty = 1;  ///< > 0; over prompt and outputs; 1: off
  std::int32_t logprobs = -1;    ///< -1: none, 0: of the chosen id, k: also of the k best
  std::uint64_t seed = 0;
  std::int32_t prompt_tokens = 0;  ///< outputs begin at this position
  std::int32_t min_tokens = 0;     ///< stop ids are masked before this many outputs
  std::int32_t output_limit = 0;   ///< most outputs, for the stop mask; 0: no limit

  std::int32_t stop_count = 0;                  ///< ids that end the sequence, eos included
  std::int32_t stop_ids[inline_stop_ids] = {};  ///< the first of them
  const std::int32_t* more_stop_ids = nullptr;  ///< [stop_count - inline_stop_ids] the others

  std::int32_t bias_count = 0;
  const token_bias* bias = nullptr;  ///< [bias_count] an id listed twice gets both
};

constexpr bool is_greedy(const slot_sampling& slot) {
  return slot.temperature < greedy_temperature;
}

constexpr bool has_penalties(const slot_sampling& slot) {
  return slot.presence_penalty != 0.0f || slot.frequency_penalty != 0.0f ||
         slot.repetition_penalty != 1.0f;
}

}  // namespace deepinfer::kernels
