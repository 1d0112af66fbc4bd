/// What every request of a scenario must say, from the rules of the hash model alone: no engine,
/// depth, draft or batch is asked.
///
/// Ends of a sequence, the earliest one wins: id 1 or a stop id from output `min_tokens` on, a stop
/// string that an output completes (with `stop_in_reasoning: false` only behind id 2), max_tokens
/// or max_model_len, an output that the grammar allows nothing for. A request that cannot start has
/// no tokens: an empty prompt, ids outside 1..V-1, a prompt of max_model_len or more (`rejected`),
/// one longer than every pool it may run on (`resource`).
/// A continued request continues the whole output of the other, as the oracle has it.
#pragma once

#include <cstdint>
#include <vector>

#include "config/scenario.hpp"
#include "config/scenario_cases.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

struct oracle_answer {
  std::vector<token_id> prompt;
  std::vector<token_id> tokens;
  std::vector<float> logprobs;  ///< one per token
  scenario_finish finish = scenario_finish::none;
  errc code = errc::ok;               ///< with rejected, error and resource
  std::int32_t reasoning_tokens = 0;  ///< up to and with id 2, or all; 0 without reasoning
};

/// Reasoning among these outputs: up to and with id 2, or all of them.
std::int32_t reasoning_tokens_of(const std::vector<token_id>& outputs);

/// One answer per request of `of`, in a case that has been seeded.
std::vector<oracle_answer> ask_oracle(const scenario& of, const scenario_case& it);

}  // namespace deepinfer
