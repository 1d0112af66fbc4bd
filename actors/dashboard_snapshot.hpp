/// What the dashboard shows of a node at one moment, as one line of JSON. Pure: no clock.
///
/// Shape (times of steps in microseconds of the steady clock, `now_us` is on it as well; every key
/// is always there, null where nothing is known):
///   newest_step   number: what the next call is told, so that steps are not sent again; -1: none
///   now_us        number
///   uptime_s      number: since the model was loaded; null while it is not
///   health        {state, progress, stage, node, replicas, open_requests}
///   model         {names: [string], max_model_len, num_kv_blocks, block_size, device, kernels}
///   running, waiting   numbers: requests; those that no replica has yet wait, too
///   totals        {prompt_tokens, generation_tokens, steps, empty_steps, preemptions, hit_tokens,
///                  query_tokens, busy_us, span_us, idle_us: {plan, settle, vote, transfer},
///                  draft_tokens, accepted_tokens}; rates are differences of two snapshots
///   ttft_s, itl_s {p50, p95}: seconds, null without observations
///   overlap       number 0 to 1, of the rank that hides least; null before the first step
///   kv            {total, used, cached, reserved, deferred, free}: blocks that add up to total
///                  (used: in tables, without what launched steps have added: reserved)
///   steps         [{step, rank, kind, rows, tokens, emitted, inflight, carried, parked, overrun,
///                  plan, settle, forward, sample: [begin, end] or null, idle_us: {..}}], oldest
///                  first, at most 64 of each rank, those behind `known_step`; some come again
///   requests      [{id, state, tenant, replica, prompt_tokens, cached_tokens, output_tokens,
///                  age_s, chunks_pending}], at most 200, and requests_total
///   group         {size, go, wait, vetoed}; size 0: this node has no group of ranks
///   eplb          {placement_version, imbalance, gain, rebalances, cancelled, load}; load: a list
///                  per rank of the tokens of each expert, [] without an expert group
///   replicas      [{replica, state: "up" or "down", running, waiting, generation_tokens, steps,
///                  preemptions, kv: {total, cached, free}, busy_us, span_us}]: those of this node
///   nodes         [{name, address, origin, state, progress, takes_requests, reason, snapshot}]:
///                  where there are others, this node (origin: self), those it sends requests to
///                  (peer, joined) and those that it has told that they may send some here (told),
///                  each once. state: ready, loading or down; reason: why it takes none from here;
///                  snapshot: null, each shows its own. Of a gateway: gateway_snapshot.hpp
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/client.hpp"
#include "messages/cluster.hpp"
#include "messages/control.hpp"
#include "runtime/base/json.hpp"
#include "runtime/base/metrics.hpp"
#include "runtime/base/trace_ring.hpp"

namespace deepinfer {

struct dashboard_view {
  node_health health;
  model_info model;
  node_stats stats;
  std::vector<std::optional<node_stats>>
    replicas;  ///< parts of `stats`; nothing of one that is down
  request_list requests;
  node_list nodes;                               ///< this one, and those that it knows
  std::vector<step_trace> steps;                 ///< newest ones of all ranks, oldest first
  std::int64_t known_step = -1;                  ///< `newest_step` of the snapshot before
  std::int64_t now_us = 0;                       ///< steady clock
  std::int64_t unix_seconds = 0;                 ///< now
  std::int32_t group_size = 0;                   ///< ranks that vote; 0: they do not
  std::vector<std::vector<double>> expert_load;  ///< per rank and expert
};

/// `counts` has been refreshed with the stats.
std::string dashboard_snapshot(const dashboard_view& view, const metrics& counts);

/// The same before it is text, and how many requests of a list it shows.
json::object dashboard_object(const dashboard_view& view, const metrics& counts);
constexpr std::size_t dashboard_requests = 200;
json::object dashboard_request(const request_info& it);

/// Requests that no replica has yet.
std::int64_t waiting_for_replica(const request_list& list);

}  // namespace deepinfer
