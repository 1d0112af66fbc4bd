/// Requests of every kind and the equality that the model's runner owes them: whatever the
/// schedule, each gets what it gets alone, bit for bit (ids and the bits of every logprob).
#pragma once

#include <vector>

#include "runner_fixture.hpp"

namespace deepinfer::test {

sampling_params greedy(std::int32_t logprobs = -1);
/// Sampled, with everything that reads slot state or history.
sampling_params lively(std::uint64_t seed);

/// Prompts below, at and above the window, odd and even, arriving at different steps; greedy and
/// lively in turn, each with a seed of its own. They want 6 to 10 tokens and `more`.
std::vector<drive_request> mixed_requests(std::int32_t vocab, std::int32_t more = 0);

struct named_model {
  const char* name;
  weights_ptr weights;
};
/// A trained one, a generated one and a quantised one.
const std::vector<named_model>& all_models(kernels::packing how);

/// `mixed_requests` by the plainest schedule there is: one sequence at a time, whole prompts, one
/// step in flight, no drafts. Computed once per model and mode.
const std::vector<driven_output>& alone(const weights_ptr& weights, numeric_mode numeric,
                                        std::int32_t more = 0);

/// `mixed_requests` of one model and mode, run with `options`, must give what each gives alone.
void check_equal_to_alone(const named_model& model, const drive_options& options,
                          std::int32_t more = 0, drive_counts* counts = nullptr);
/// The same of every model in every mode.
void check_all_equal_to_alone(const drive_options& options);

}  // namespace deepinfer::test
