/// Every actor's interface on one page: who may be told what, and what is answered.
///
/// One data-parallel rank is five actors that are linked to each other: if one dies, all do, and
/// the rank's supervisor starts them again. Plans and results are shared, immutable and never
/// leave the process; a step costs a fixed number of messages, whatever its rows:
///
///   scheduler -> worker            plan                     1
///   worker -> device_gate          submit_step              2
///   device thread -> device_gate   fired                    3
///   device_gate -> worker          step_done (answer)       4
///   worker -> scheduler            result (answer)          5
///   scheduler -> gateway           chunk_batch              6
///   scheduler -> release_collector lease_return             7
///   release_collector -> kv_allocator  kv_release           8  (when a fence was passed)
///   scheduler -> kv_allocator      kv_reserve               9  (when credit is low)
///   kv_allocator -> scheduler      kv_grant                10  (then, or when blocks come back)
/// and, where rows wait for the host's masks, scheduler -> worker -> device_gate   2 more.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/caf_compat.hpp"
#include "config/engine_settings.hpp"
#include "messages/client.hpp"
#include "messages/control.hpp"
#include "messages/device.hpp"
#include "messages/kv.hpp"
#include "messages/plan.hpp"
#include "messages/request.hpp"
#include "runtime/base/trace_ring.hpp"
#include "runtime/core/scheduler_config.hpp"

namespace deepinfer {

using plan_ptr = std::shared_ptr<const step_plan>;
using result_ptr = std::shared_ptr<step_result>;
using gate_ptr = std::shared_ptr<const sample_gate>;
using submit_batch = std::vector<sequence_request>;

using fired_atom = caf::atom_constant<caf::atom("fired")>;
using quarantine_atom = caf::atom_constant<caf::atom("quarantine")>;
using proven_atom = caf::atom_constant<caf::atom("proven")>;
using recover_atom = caf::atom_constant<caf::atom("recover")>;
using abort_atom = caf::atom_constant<caf::atom("abort")>;
using stats_atom = caf::atom_constant<caf::atom("stats")>;
using trace_atom = caf::atom_constant<caf::atom("trace")>;
using generate_atom = caf::atom_constant<caf::atom("generate")>;
using cancel_atom = caf::atom_constant<caf::atom("cancel")>;
using chunk_atom = caf::atom_constant<caf::atom("chunk")>;
using rank_up_atom = caf::atom_constant<caf::atom("rankup")>;
using rank_down_atom = caf::atom_constant<caf::atom("rankdown")>;
using gate_atom = caf::atom_constant<caf::atom("gate")>;
using stop_atom = caf::atom_constant<caf::atom("stop")>;
using kill_atom = caf::atom_constant<caf::atom("kill")>;
using wake_atom = caf::atom_constant<caf::atom("wake")>;
using turn_atom = caf::atom_constant<caf::atom("turn")>;
using flush_atom = caf::atom_constant<caf::atom("flush")>;
using hold_atom = caf::atom_constant<caf::atom("hold")>;
using credit_atom = caf::atom_constant<caf::atom("credit")>;
using list_atom = caf::atom_constant<caf::atom("list")>;
using call_atom = caf::atom_constant<caf::atom("call")>;
using started_atom = caf::atom_constant<caf::atom("started")>;
using ended_atom = caf::atom_constant<caf::atom("ended")>;
using returned_atom = caf::atom_constant<caf::atom("returned")>;
using slots_atom = caf::atom_constant<caf::atom("slots")>;
using gone_atom = caf::atom_constant<caf::atom("gone")>;
using join_atom = caf::atom_constant<caf::atom("join")>;
using leave_atom = caf::atom_constant<caf::atom("leave")>;
using close_atom = caf::atom_constant<caf::atom("close")>;
using ready_atom = caf::atom_constant<caf::atom("ready")>;
using tick_atom = caf::atom_constant<caf::atom("tick")>;

/// An operator's word to a scheduler. Answered when it has taken effect: a pause when nothing is in
/// flight, a drain when no sequence is left, a flush when the prefix cache is empty; else at once.
struct scheduler_order {
  enum class verb : std::uint8_t {
    pause,
    resume,
    drain,
    flush,
    flush_running,  ///< takes the blocks of all running sequences first
    preempt,
    preempt_all,
    abort_all,
    set_depth,
    set_policy
  };
  verb what = verb::pause;
  seq_id sequence{};          ///< preempt
  std::int32_t depth = 0;     ///< set_depth: 1..max_depth of the scheduler, else an error
  scheduler_policy policy{};  ///< set_policy
};

/// How a request has ended at a replica.
struct request_end {
  std::int32_t outputs = 0;
  std::string finish;  ///< reason of each answer; empty: the replica has logged the end itself
  errc code = errc::ok;
  std::optional<std::uint64_t> seed{};  ///< nothing: not known
};

/// KV ALLOCATOR: owns the pool of blocks and slots of one rank.
using kv_allocator_actor = caf::typed_actor<
  // The scheduler asks for credit ahead of need. It is told kv_grant with what is truly free; what
  // is owed follows in further grants, as blocks come back.
  note<kv_reserve>,
  // Takes blocks and slots back. INTERNAL: only the release collector sends this.
  note<kv_release>,
  // Forgets every cached prefix.
  rpc<bool, flush_atom>,
  // The pool's gauges.
  rpc<node_stats, stats_atom>>;

/// RELEASE COLLECTOR: holds what a launched step may still read until that step has settled.
using release_collector_actor = caf::typed_actor<
  // Parks entries behind their fences; drains what has settled to the allocator.
  note<lease_return>,
  // A step's watchdog ran out: what it may touch stays until the device has proved it finished.
  note<quarantine_atom, step_id>, note<proven_atom, step_id>,
  // The number of parked blocks.
  rpc<node_stats, stats_atom>>;

/// DEVICE GATE: turns device completions into answers; the only door for foreign threads.
using device_gate_actor = caf::typed_actor<
  // Launches a step. Answered when its last phase has ended; deadline_exceeded when the watchdog
  // ran out, which proves nothing about the device.
  rpc<step_done, submit_step>,
  // A device thread reports a ticket. INTERNAL.
  note<fired_atom, ticket, device_status, phase_times>,
  // Answered when a step whose watchdog ran out has ended after all.
  rpc<step_done, recover_atom, step_id>,
  // The masks of a gated step are there: its last rows may be sampled.
  note<gate_atom, step_id>,
  // Looks for tickets past their deadline. INTERNAL.
  note<wake_atom>>;

/// WORKER: owns the ring of worker_step_state of one rank; stages plans, launches, collects.
using worker_actor = caf::typed_actor<
  // Launches a plan. Answered with the step's result, in launch order; a failed step is a result
  // with a code, not an error.
  rpc<result_ptr, plan_ptr>,
  // Masks of the gated rows of a launched step.
  note<gate_ptr>,
  // Waits for a timed-out step; answered once the device has proved it finished.
  rpc<step_id, recover_atom, step_id>>;

/// SCHEDULER: owns the sequences of one rank; plans step n+1 while n runs, settles the oldest.
using scheduler_actor = caf::typed_actor<
  // New sequences, in arrival order.
  note<submit_batch>,
  // Credit from the allocator.
  note<kv_grant>,
  // Ends a sequence; unknown ids are legal.
  note<abort_atom, seq_id>,
  // Plans no further row of a sequence, or plans them again: its client takes nothing.
  note<hold_atom, seq_id, bool>,
  // Does what an operator says.
  rpc<bool, scheduler_order>,
  // Something outside may have become ready (a grammar): looks again.
  note<wake_atom>,
  // The loop goes on, behind every message that has arrived; its own work for so long has ended.
  // INTERNAL.
  note<turn_atom>, note<turn_atom, std::uint64_t>,
  // Looks whether the result of the oldest step is late. INTERNAL.
  note<tick_atom>,
  // What the rank is doing.
  rpc<node_stats, stats_atom>,
  // The newest steps of the trace ring, oldest first.
  rpc<std::vector<step_trace>, trace_atom, std::uint32_t>>;

/// RANK CLIENT: whom a rank tells what its sequences gained: a gateway, or who stands in for one.
using rank_client_actor = caf::typed_actor<
  // Tokens of a settled step.
  note<chunk_batch>,
  // A rank can be used (again); it has been lost, and why, and whether for good.
  note<rank_up_atom, scheduler_actor>, note<rank_down_atom, std::string, bool>,
  // Ends every open request with server_shutdown, then leaves.
  note<stop_atom>>;

/// FRONT: takes requests: a gateway for one rank, a router for all that a node knows, a link to
/// another node.
using front_actor = caf::typed_actor<
  // Starts a request whose chunks go to `sink` as (chunk_atom, chunk_list); answered with its id.
  // An error ends it before it has begun. If the sink leaves, the request is cancelled.
  rpc<std::string, generate_atom, generate_request, caf::actor>,
  // Cancels a request: true where it was still running. Its sink gets the final chunk.
  rpc<bool, cancel_atom, std::string>,
  // The client of a request with a window takes so many chunks more.
  note<credit_atom, std::string, std::int32_t>,
  // Open requests, in order of arrival. A link to another node tells of those that came through it
  // what chunks have said: ids, outputs and seeds, with no state.
  rpc<request_list, list_atom>,
  // What it is doing.
  rpc<node_stats, stats_atom>>;

/// GATEWAY: the clients' side of one rank: checks, tokenizes, names, detokenizes, streams, cancels.
using gateway_actor = rank_client_actor::extend_with<front_actor>::extend<
  // What may change while a node runs has changed: how long a request may wait, what is logged.
  note<engine_settings>,
  // Looks at the clock: clients that take nothing, requests that wait too long. INTERNAL.
  note<tick_atom>>;

/// REQUEST WATCHER: told by the replicas' fronts how their requests fare. The number is that of the
/// replica.
using request_watcher_actor = caf::typed_actor<
  // The first row of a request was launched, behind so many prompt tokens from the cache.
  note<started_atom, std::int32_t, std::string, std::int32_t>,
  // A request has ended.
  note<ended_atom, std::int32_t, std::string, request_end>,
  // The replica was lost before a request had started: its sink was told nothing, nobody at the
  // replica knows it any more, another may have it.
  note<returned_atom, std::int32_t, std::string>,
  // A node elsewhere runs so many sequences at a time. Told before it can take requests, where it
  // is known.
  note<slots_atom, std::int32_t, std::int32_t>,
  // The replica can take requests, or cannot and why.
  note<ready_atom, std::int32_t, bool, std::string>,
  // The replica is lost for good, and why. Follows what is told of its requests.
  note<gone_atom, std::int32_t, std::string>>;

/// NODE DOOR: everything a client may ask of a node, its operator's verbs included (control.hpp):
/// a router, or the link to a node elsewhere.
using node_door_actor = front_actor::extend<
  // The answer of a verb, both as Protobuf bytes.
  rpc<std::string, call_atom, std::string, std::string>,
  // Leaves.
  note<stop_atom>>;

/// CONTROL: answers those verbs of operators that a router does not know.
using control_actor = caf::typed_actor<
  // The answer of a verb, both as Protobuf bytes.
  rpc<std::string, call_atom, std::string, std::string>,
  // Leaves.
  note<stop_atom>>;

/// RANK SUPERVISOR: starts the five actors of a rank, and starts them again when one has died, once
/// the device has drained.
using supervisor_actor = caf::typed_actor<
  // A device thread reports that everything launched before the fence has ended. INTERNAL.
  note<fired_atom, ticket, device_status, phase_times>,
  // The device has not drained in time. INTERNAL.
  note<wake_atom, std::uint64_t>,
  // Kills one actor of the rank by name, as a crash would. For tests.
  rpc<bool, kill_atom, std::string>,
  // Gauges of the whole rank.
  rpc<node_stats, stats_atom>,
  // The newest steps of the trace.
  rpc<std::vector<step_trace>, trace_atom, std::uint32_t>,
  // Passes an operator's word on; false while the rank is down.
  rpc<bool, scheduler_order>,
  // Ends the rank for good.
  note<stop_atom>>;

}  // namespace deepinfer

// Local only: these are shared by pointer or moved, never serialised.
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::plan_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::result_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::gate_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::scheduler_order)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::request_end)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::submit_batch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::kv_grant)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::engine_settings)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::kv_reserve)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::kv_release)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::lease_return)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::submit_step)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::step_done)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::ticket)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::step_id)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::seq_id)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::device_status)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::phase_times)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::chunk_batch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::generate_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::chunk_list)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::request_list)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::node_stats)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::vector<deepinfer::step_trace>)
