/// The parts of a speculating step, each timed alone: a step of one id, a step that verifies k
/// drafts, the pass that makes them. What `bench latency` measures its gains against.
#pragma once

#include <cstdint>
#include <memory>

#include "actors/model_loading.hpp"
#include "actors/node/bench/latency_bench.hpp"
#include "runtime/device/cpu_team.hpp"
#include "runtime/model/model_session.hpp"

namespace deepinfer {

class latency_parts {
public:
  /// `context`: ids of a sequence before the first timed step. Errors: those of sessions.
  static result<latency_parts> make(const engine_settings& engine, const loaded_model& model,
                                    std::int32_t context, const latency_settings& settings);

  /// Some of each, added to `out`.
  result<void> run(decode_latency& out);

private:
  latency_parts(const loaded_model& model, const engine_settings& engine, std::int32_t context,
                std::int32_t drafts);
  result<void> run_here(decode_latency& out);
  result<void> time_steps(model_session& session, std::int32_t width, sample_list& out);
  result<void> time_passes(sample_list& out);

  std::unique_ptr<cpu_team> team_;
  std::unique_ptr<model_session> plain_, drafting_;
  random_ids ids_;
  std::int32_t context_, drafts_;
};

}  // namespace deepinfer
