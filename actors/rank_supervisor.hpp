/// Rank supervisor: the unit of restart is the rank. Messages: protocol.hpp.
///
/// Starts device_gate, kv_allocator, release_collector, worker and scheduler, linked to each other.
/// When one dies the others die with it; the gateway is told; the device is drained by a step that
/// does nothing, launched behind everything else; state is reset and the rank starts again. A rank
/// that dies too often stays down, one whose device does not drain stays down until it does: their
/// requests end with rank_lost. A depth and a policy that an operator has set hold after a restart.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "actors/device_gate.hpp"
#include "actors/protocol.hpp"
#include "actors/rank_hooks.hpp"
#include "runtime/base/metrics.hpp"
#include "runtime/core/scheduler_core.hpp"
#include "runtime/model/step_runner.hpp"

namespace deepinfer {

struct rank_config {
  scheduler_config scheduler;
  std::shared_ptr<step_runner> runner;
  device* on = nullptr;
  const token_texts* texts = nullptr;
  grammar_source* grammars = nullptr;
  std::shared_ptr<verify_sizer> sizer;  ///< null: every draft is verified
  std::chrono::microseconds watchdog{};
  std::size_t trace_steps = 4096;
  std::int32_t max_restarts = 8;
  rank_hooks hooks;
  metrics* counts = nullptr;  ///< null: nothing is counted
};

/// Completions are called with doors; they outlive the actors, so their owner is the node.
using device_doors = std::vector<std::unique_ptr<device_door>>;

struct rank_supervisor_state {
  static inline const char* name = "rank_supervisor";

  struct parts {
    device_gate_actor gate;
    kv_allocator_actor allocator;
    release_collector_actor collector;
    worker_actor worker;
    scheduler_actor scheduler;
  };

  rank_config config;
  rank_client_actor gateway;
  device_doors* doors = nullptr;
  std::optional<parts> running;
  std::size_t alive = 0;  ///< actors of the rank not yet gone
  std::uint64_t restarts = 0;
  std::uint64_t drain_ticket = 0;
  bool is_stopping = false;
  bool is_dead = false;  ///< it was given up
};

/// Adds up what parts of a rank, or ranks of a node, tell of themselves.
void add(node_stats& sum, const node_stats& more);

supervisor_actor::behavior_type
rank_supervisor(supervisor_actor::stateful_pointer<rank_supervisor_state> self, rank_config config,
                rank_client_actor gateway, device_doors* doors);

}  // namespace deepinfer
