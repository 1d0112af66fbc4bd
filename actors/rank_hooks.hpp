/// Seams of a rank for those who play with its time or watch it: scenarios, simulator, benches. In
/// the product all are null, and nothing else differs.
#pragma once

#include <chrono>
#include <functional>

#include "actors/protocol.hpp"
#include "messages/plan.hpp"
#include "runtime/base/trace_ring.hpp"
#include "runtime/core/bubble_accountant.hpp"
#include "runtime/core/kv_pool.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

/// What planning and settling cost the host. A real pace spends the time itself and returns 0; one
/// on a virtual clock returns how long the scheduler is to be busy.
class host_pace {
public:
  virtual ~host_pace() = default;
  virtual std::chrono::nanoseconds plan(const step_plan& plan) = 0;
  virtual std::chrono::nanoseconds settle(const step_result& result) = 0;
};

/// Told what the rank's actors do, from inside of them: it must not wait.
class rank_watch {
public:
  virtual ~rank_watch() = default;
  /// A rank has come up; both live until it goes down.
  virtual void on_start(const scheduler_core&, const bubble_accountant&) {}
  virtual void on_launch(const step_plan&, const scheduler_core&) {}
  virtual void on_settle(const step_result&, const scheduler_core&) {}
  /// The scheduler had nothing left to do but to wait for the device; `step` has ended the wait.
  virtual void on_host_wait(step_id) {}
  virtual void on_outbox(const scheduler_outbox&, const scheduler_core&) {}
  /// A settled step, as it went into the trace.
  virtual void on_traced(const step_trace&) {}
  /// The scheduler has nothing to do until a message comes.
  virtual void on_sleep(const scheduler_core&) {}
  /// Before the pool takes back `done`, and after each change of it.
  virtual void on_release(const kv_release&, const kv_pool&) {}
  virtual void on_pool(const kv_pool&) {}
  virtual void on_depth(std::int32_t) {}  ///< from now on
  virtual void on_flushed() {}            ///< the prefix cache, as ordered
  /// The step was not answered in time: nothing is launched until it is proven to have ended.
  virtual void on_suspect(step_id) {}
  virtual void on_proven(step_id) {}
  /// The core, or the pool, is no more.
  virtual void on_core_gone() {}
  virtual void on_pool_gone() {}
};

struct rank_hooks {
  host_pace* pace = nullptr;
  rank_watch* watch = nullptr;
  grammar_source* grammars = nullptr;  ///< instead of the engine's own
  /// The scheduler lets every message of the moment arrive between two steps of its loop, also
  /// those that are still on their way from other actors: for actor systems on a virtual clock.
  bool yields_each_turn = false;
  /// Puts something between the worker and its gate.
  std::function<device_gate_actor(caf::actor_system&, const device_gate_actor&)> tap_gate;
};

}  // namespace deepinfer
