#include "mixed_requests.hpp"

#include <doctest/doctest.h>

#include <map>
#include <tuple>

namespace deepinfer::test {

sampling_params greedy(std::int32_t logprobs) {
  sampling_params params;
  params.temperature = 0;
  params.logprobs = logprobs;
  return params;
}

sampling_params lively(std::uint64_t seed) {
  sampling_params params;
  params.temperature = 0.9f;
  params.top_p = 0.95f;
  params.top_k = 40;
  params.presence_penalty = 0.4f;
  params.frequency_penalty = 0.2f;
  params.repetition_penalty = 1.1f;
  params.seed = seed;
  params.logprobs = 3;
  params.min_tokens = 2;
  params.logit_bias = {{5, 0.5f}};
  return params;
}

std::vector<drive_request> mixed_requests(std::int32_t vocab, std::int32_t more) {
  constexpr std::int32_t lengths[] = {1, 2, 7, 8, 9, 16, 33, 40, 65, 23};
  std::vector<drive_request> requests;
  for (std::size_t i = 0; i < std::size(lengths); ++i) {
    drive_request it;
    it.prompt = random_ids(i + 1, lengths[i], vocab);
    it.max_tokens = 6 + static_cast<std::int32_t>(i % 5) + more;
    it.params = i % 2 == 0 ? greedy(4) : lively(100 + i);
    it.params.seed = 100 + i;
    it.arrival = static_cast<std::int32_t>(i % 4) * 2;
    requests.push_back(std::move(it));
  }
  return requests;
}

const std::vector<named_model>& all_models(kernels::packing how) {
  static std::map<kernels::packing, std::vector<named_model>> models;
  auto& made = models[how];
  if (made.empty())
    made = {{"tiny", tiny_model(how)},
            {"generated", generated_t1({}, how)},
            {"quantised", golden_model("v41-a-fp8", how)}};
  return made;
}

const std::vector<driven_output>& alone(const weights_ptr& weights, numeric_mode numeric,
                                        std::int32_t more) {
  using key = std::tuple<const model_weights*, numeric_mode, std::int32_t>;
  static std::map<key, std::vector<driven_output>> known;
  auto& outputs = known[{weights.get(), numeric, more}];
  if (!outputs.empty()) return outputs;
  const auto requests = mixed_requests(weights->config.vocab_size, more);
  for (auto request : requests) {
    request.arrival = 0;
    drive_options options;
    options.numeric = numeric;
    outputs.push_back(drive(weights, {request}, options).front());
  }
  return outputs;
}

void check_equal_to_alone(const named_model& model, const drive_options& options, std::int32_t more,
                          drive_counts* counts) {
  CAPTURE(model.name);
  CAPTURE(static_cast<int>(options.numeric));
  const auto& weights = model.weights;
  const auto requests = mixed_requests(weights->config.vocab_size, more);
  const auto outputs = drive(weights, requests, options, -1, counts);
  const auto& expected = alone(weights, options.numeric, more);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CAPTURE(i);
    REQUIRE(std::ssize(expected[i].tokens) == requests[i].max_tokens);
    REQUIRE(expected[i].logprobs.size() == expected[i].tokens.size());
    CHECK(outputs[i] == expected[i]);
  }
}

void check_all_equal_to_alone(const drive_options& options) {
  for (const auto numeric : all_modes)
    for (const auto& model : all_models(packing_of(numeric))) {
      auto with_mode = options;
      with_mode.numeric = numeric;
      check_equal_to_alone(model, with_mode);
    }
}

}  // namespace deepinfer::test
