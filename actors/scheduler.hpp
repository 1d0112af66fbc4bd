/// Scheduler: the shell over `scheduler_core`. Messages: protocol.hpp.
///
/// Its loop: apply every message that has arrived; launch one step if the core has one; else settle
/// the oldest step if its result is there; and again. Where neither can be done it sleeps on its
/// mailbox: the one wait per step is for the result of the oldest step.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "actors/protocol.hpp"
#include "actors/rank_hooks.hpp"
#include "actors/rank_metrics.hpp"
#include "runtime/base/metrics.hpp"
#include "runtime/base/trace_ring.hpp"
#include "runtime/core/answer_deadline.hpp"
#include "runtime/core/bubble_accountant.hpp"
#include "runtime/core/scheduler_core.hpp"
#include "runtime/core/verify_sizer.hpp"

namespace deepinfer {

class device;

/// Who the scheduler talks to and what it may read; all outlive it.
struct scheduler_links {
  worker_actor worker;
  kv_allocator_actor allocator;
  release_collector_actor collector;
  rank_client_actor gateway;
  const device* clock = nullptr;
  const token_texts* texts = nullptr;
  grammar_source* grammars = nullptr;
  std::shared_ptr<verify_sizer> sizer;
  std::size_t trace_steps = 4096;
  std::chrono::microseconds answer_timeout{};  ///< longest wait for a result; above the watchdog
  rank_hooks hooks;
  metrics* counts = nullptr;  ///< null: nothing is counted
};

struct scheduler_state {
  static inline const char* name = "scheduler";

  ~scheduler_state() {
    if (links.hooks.watch) links.hooks.watch->on_core_gone();
  }

  struct waiting_order {
    scheduler_order order;
    caf::typed_response_promise<bool> promise;
  };

  std::unique_ptr<scheduler_core> core;
  std::optional<rank_metrics> counted;  ///< absent: nothing is counted
  scheduler_links links;
  scheduler_outbox outbox;
  /// Plans are reused once nobody else holds them: steady state allocates none.
  std::vector<std::shared_ptr<step_plan>> plans;
  answer_deadline due;             ///< results of launched steps
  std::deque<result_ptr> results;  ///< arrived and not settled, in launch order
  std::vector<waiting_order> orders;
  std::int32_t flushes = 0;  ///< of the prefix cache, not answered: nothing is launched meanwhile
  std::array<step_trace, depth_limit + 1> open_traces;
  std::unique_ptr<trace_ring> trace;
  bubble_accountant accountant;
  std::vector<chunk_batch::start> started;
  std::vector<chunk_batch::preemption> preempted;  ///< told with the next chunks
  std::set<step_id> suspects;                      ///< timed-out steps not yet proved finished
  bool is_resting = true;
  bool waits_for_device = false;           ///< it sleeps, and steps are in flight
  bool has_turn = false;                   ///< a turn message is on its way
  std::int32_t postponed = 0;              ///< turns in a row, behind other messages
  std::optional<std::uint64_t> busy_with;  ///< host work that ends with this message
  std::uint64_t works = 0;                 ///< host works so far
  std::shared_ptr<step_plan> held_plan;    ///< planned, launched when the host work ends
  gate_ptr held_gate;                      ///< of held_plan: its masks were ready first
  result_ptr held_result;                  ///< settled when the host work ends
  std::int64_t work_begin_ns = 0;
  std::int64_t rest_begin_ns = -1;  ///< since when no request could go on; -1: one can
  std::uint64_t messages = 0;       ///< of steps: sent here, and those a plan causes
};

scheduler_actor::behavior_type scheduler(scheduler_actor::stateful_pointer<scheduler_state> self,
                                         scheduler_config config, scheduler_links links);

}  // namespace deepinfer
