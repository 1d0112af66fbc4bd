/// What a draft pass costs, beside the decode step that it is to save: part of `bench offline`.
///
/// The product's steps do not draft, so passes are driven by hand here: a model_session over the
/// checkpoint's weights, loaded once, with the node's threads, numeric mode and kernels. For each
/// batch, random prompts are fed; then steps of one id per sequence alternate with passes of the
/// model's block size K, as a loop that speculates would run them. Only passes are timed. As many
/// passes as a batch has decode steps make a repeat; the first repeat warms up and isn't counted;
/// probes of the machine lie between them.
/// Errors: those of loading; no_device where memory is not to be had; internal where a session
/// refuses what offline_bench has checked.
///
/// JSON of a batch: {"batch", "drafts": K, "passes", "seconds": summary of a pass (all K drafts of
/// all sequences), "seconds_per_draft": median over batch times K, "steps_per_pass": median over
/// that of a decode step of the same batch of this run, or null without such a step,
/// "context_seconds": what keeping the drafter's context adds to a step, whether it drafts or not},
/// and of a pass what a phase says of a step: "bytes", "flops", "int8_ops", "bound_seconds",
/// "bound_by", "share", "share_in_ops", "share_in_kernels", "parts", "ops" (bench_offline.hpp).
/// Source: model-v41.md 11.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "actors/node/bench/bench_offline.hpp"
#include "config/engine_settings.hpp"
#include "runtime/device/cpu_team.hpp"
#include "runtime/model/model_session.hpp"

namespace deepinfer {

struct draft_phase {
  std::int32_t batch = 0;
  std::int32_t drafts = 0;     ///< of a sequence and pass
  sample_list seconds;         ///< of each pass
  counted_work work;           ///< of all passes
  double context_seconds = 0;  ///< of a step
};

class draft_bench {
public:
  /// Loads the weights at `path`, which has a drafter.
  static result<draft_bench> make(const engine_settings& engine, const std::string& path,
                                  std::int32_t threads, const offline_settings& settings);

  /// Adds its probes to `rates`, which are of as many threads.
  result<draft_phase> measure(std::int32_t batch, machine_rates& rates);

private:
  struct meters {
    work_meter steps, passes;
  };

  draft_bench(machine_probe probe, std::shared_ptr<const model_weights> weights,
              std::unique_ptr<cpu_team> team, const engine_settings& engine,
              const offline_settings& settings);
  result<draft_phase> measure_here(std::int32_t batch, machine_rates& rates);
  result<std::unique_ptr<model_session>> new_session(std::int32_t batch) const;
  result<void> feed_prompts(model_session& session, std::int32_t batch);
  result<void> run_repeat(model_session& session, meters& counted, draft_phase& out);
  void probe_machine(machine_rates& rates);

  machine_probe probe_;
  std::shared_ptr<const model_weights> weights_;
  std::unique_ptr<cpu_team> team_;
  offline_settings settings_;
  session_config sizes_;  ///< what does not depend on the batch; max_tokens is the engine's
  random_ids ids_;
};

json::object draft_object(const draft_phase& phase, double step_seconds,
                          const machine_rates& rates);
/// `step_seconds`: the median decode step of the same batch; 0: there is none.
std::string draft_text(const draft_phase& phase, double step_seconds, const machine_rates& rates);

}  // namespace deepinfer
