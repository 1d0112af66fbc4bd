/// Worker: stages plans, launches them through the device gate, collects results. Messages:
/// protocol.hpp. It keeps one `worker_step_state` per launched step (WorkerStepState) until the
/// step has ended, also when its watchdog ran out: the device may still read what it holds.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "actors/pending.hpp"
#include "actors/protocol.hpp"
#include "runtime/core/worker_step_state.hpp"
#include "runtime/model/step_runner.hpp"

namespace deepinfer {

struct worker_links {
  device_gate_actor gate;
  std::shared_ptr<step_runner> runner;
  std::chrono::microseconds watchdog{};
};

struct worker_state {
  static inline const char* name = "worker";

  worker_links links;
  std::optional<worker_step_ring> ring;
  pending<result_ptr> waiting;               ///< the scheduler's requests, by step
  std::map<step_id, std::uint64_t> overdue;  ///< generation of steps whose watchdog ran out
  /// Results are reused once nobody else holds them.
  std::vector<result_ptr> results;
};

worker_actor::behavior_type worker(worker_actor::stateful_pointer<worker_state> self,
                                   worker_links links);

}  // namespace deepinfer
