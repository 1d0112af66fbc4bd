/// Scheduler: the shell over `scheduler_core`. Messages: protocol.hpp.
///
/// It applies what arrived, launches while the core has a plan (at most `depth` steps are in
/// flight), and settles results in launch order. Its one wait per step is for the result of the
/// oldest step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "actors/protocol.hpp"
#include "runtime/base/trace_ring.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

class device;

/// Who the scheduler talks to and what it may read; all outlive it.
struct scheduler_links {
  worker_actor worker;
  kv_allocator_actor allocator;
  release_collector_actor collector;
  gateway_actor gateway;
  const device* clock = nullptr;
  const token_texts* texts = nullptr;
  std::size_t trace_steps = 4096;
  std::chrono::microseconds answer_timeout{};  ///< longest wait for a result; above the watchdog
};

struct scheduler_state {
  static inline const char* name = "scheduler";

  std::unique_ptr<scheduler_core> core;
  scheduler_links links;
  scheduler_outbox outbox;
  /// Plans are reused once nobody else holds them: steady state allocates none.
  std::vector<std::shared_ptr<step_plan>> plans;
  std::array<step_trace, depth_limit + 1> open_traces;
  std::unique_ptr<trace_ring> trace;
  device_usage usage;
  std::vector<seq_id> started;
  std::set<step_id> suspects;  ///< timed-out steps not yet proved finished
  bool is_resting = true;
  std::uint64_t messages = 0;  ///< of steps: sent here, and those a plan causes
};

scheduler_actor::behavior_type scheduler(scheduler_actor::stateful_pointer<scheduler_state> self,
                                         scheduler_config config, scheduler_links links);

}  // namespace deepinfer
