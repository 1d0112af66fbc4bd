/// An engine of the step bench: the product's actors on one core, its device on another.
///
/// The kernel team is one thread. All that the scheduler, the worker and their neighbours do shares
/// the host's core; copies run on the device's. Requests of a batch start in the same step and are
/// of equal length, so that decode steps with a row for each of them are the rule.
/// Errors: those of loading, no_device without two cores, and those of requests.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "actors/model_loading.hpp"
#include "actors/node.hpp"
#include "actors/node/bench/bench_steps.hpp"
#include "config/engine_settings.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

class spinning_pace;

struct step_engine_sizes {
  std::int32_t depth = 1;
  std::int32_t num_drafts = 0;
  std::int32_t rows_max = 0;    ///< requests of a batch
  std::int32_t tokens_max = 0;  ///< prompt and outputs of a request
};

/// Decode steps with a row for each request of a batch: the mean and median step of one run.
struct step_sample {
  double seconds = 0.0;         ///< median, from the begin of a forward to that of the next
  double device_seconds = 0.0;  ///< median, forward and sampling
  double host_seconds = 0.0;    ///< median, plan and settle
  double device_idle = 0.0;     ///< share of the steps' time outside of forward and sampling
  double tokens = 0.0;          ///< mean, of a step
};

/// What steps of `rows` rows took. Error internal: fewer than `least_steps` follow each other.
inline constexpr std::size_t least_steps = 4;
result<step_sample> sample_of(const std::vector<traced_step>& steps,
                              const std::unordered_map<std::uint64_t, std::int32_t>& tokens,
                              std::int32_t rows);

class step_engine {
public:
  ~step_engine();

  static result<std::unique_ptr<step_engine>>
  make(const loaded_model& model, const engine_settings& settings, const step_engine_sizes& sizes);

  /// Runs `batch` requests for `outputs` ids each, with `loop_seconds` of host work more a step.
  result<step_sample> run(std::int32_t batch, std::int32_t prompt, std::int32_t outputs,
                          double loop_seconds);

private:
  step_engine();
  result<void> answer_all(std::int32_t batch, std::int32_t prompt, std::int32_t outputs);

  std::unique_ptr<spinning_pace> pace_;
  std::unique_ptr<node> engine_;  ///< gone before its pace
  std::uint64_t last_step_ = 0;
};

}  // namespace deepinfer
