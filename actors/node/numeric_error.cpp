#include "actors/node/numeric_error.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "actors/model_loading.hpp"
#include "runtime/device/cpu_team.hpp"
#include "runtime/model/model_session.hpp"

namespace deepinfer {
namespace {

/// Prose, figures and code: what models are asked about.
constexpr std::string_view sample =
  "Once upon a time there was a small boat that wanted to see the sea. It lived on a lake between "
  "two hills, and every morning it asked the wind which way the water went. The wind laughed and "
  "said: the water goes down, little boat, always down.\n\n"
  "Question: a train leaves at 09:40 and arrives at 12:15. How long is the journey?\n"
  "Answer: 12:15 - 09:40 = 2 hours and 35 minutes, which is 155 minutes.\n\n"
  "def total(values):\n    result = 0\n    for value in values:\n        result += value * 2\n"
  "    return result\n\n"
  "{\"name\": \"sum\", \"arguments\": {\"a\": 7, \"b\": 5}}\n"
  "The capital of France is Paris; the capital of Italy is Rome. 1, 2, 3, 5, 8, 13, 21, 34, 55.\n";

result<std::vector<float>> logits_of(const std::string& directory, numeric_mode mode,
                                     const step_settings& settings, std::int64_t& vocab) {
  DI_TRY(const auto model, load_model(directory, mode));
  vocab = model.config().vocab_size;
  auto ids = model.words.encode(sample, specials::off);
  const auto most = std::min<std::size_t>(
    ids.size(), static_cast<std::size_t>(std::max<std::int64_t>(model.config().max_positions, 1)));
  ids.resize(most);
  cpu_team team(threads_of(settings));
  session_config sizes;
  sizes.numeric = mode;
  sizes.max_positions = static_cast<std::int32_t>(ids.size());
  DI_TRY(sizes.kernels, kernels_of(settings));
  DI_TRY(const auto session, model_session::make(model.weights, sizes));
  return session->run_all({.team = &team}, ids);
}

}  // namespace

result<logit_error> measure_numeric(const std::string& directory, numeric_mode mode,
                                    const step_settings& settings) {
  std::int64_t vocab = 0;
  DI_TRY(const auto exact, logits_of(directory, numeric_mode::exact, settings, vocab));
  DI_TRY(const auto other, logits_of(directory, mode, settings, vocab));
  return compare_logits(exact, other, vocab);
}

}  // namespace deepinfer
