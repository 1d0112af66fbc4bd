#include "actors/gateway.hpp"

#include <random>

#include <fmt/format.h>

#include "actors/client_state.hpp"
#include "runtime/base/log.hpp"

namespace deepinfer {
namespace {

using pointer = gateway_actor::stateful_pointer<gateway_state>;

std::uint64_t draw_seed() {
  std::random_device source;
  return (std::uint64_t{source()} << 32) | source();
}

void send_chunk(gateway_request& request, token_chunk chunk) {
  if (chunk.finish) chunk.finish->seed = request.sequence.params->seed;
  chunk.is_last = chunk.finish.has_value();
  chunk.request_id = request.id;
  chunk.seq = request.next_seq++;
  chunk_list list;
  list.chunks.push_back(std::move(chunk));
  tell_from_outside(request.sink, chunk_atom::value, std::move(list));
}

template <class... Args>
void tell_watcher(pointer self, Args&&... args) {
  const auto& config = self->state.config;
  if (config.watcher) tell(self, config.watcher, std::forward<Args>(args)...);
}

/// Drops a request without a word to anybody.
void drop(pointer self, seq_id sequence) {
  auto& state = self->state;
  const auto found = state.requests.find(sequence);
  if (found == state.requests.end()) return;
  self->demonitor(found->second->sink);
  if (state.config.on_forgotten) state.config.on_forgotten(sequence);
  state.by_id.erase(found->second->id);
  state.requests.erase(found);
}

void forget(pointer self, seq_id sequence) {
  auto& state = self->state;
  const auto found = state.requests.find(sequence);
  if (found == state.requests.end()) return;
  tell_watcher(self, ended_atom::value, state.config.replica, found->second->id,
               found->second->output.tokens());
  drop(self, sequence);
}

/// What the request has used so far; how much of it was reasoning its output adds.
usage_counts usage_of(const gateway_request& request) {
  usage_counts out;
  out.prompt_tokens = static_cast<std::int32_t>(request.sequence.prompt->size());
  out.completion_tokens = request.output.tokens();
  out.cached_tokens = request.cached_tokens;
  return out;
}

/// Ends a request that no scheduler will end.
void end_here(pointer self, seq_id sequence, finish_reason reason, errc code, std::string message) {
  auto& request = *self->state.requests.at(sequence);
  sequence_chunk last;
  last.sequence = sequence;
  last.finish.emplace();
  last.finish->reason = reason;
  last.finish->code = code;
  last.finish->message = std::move(message);
  last.finish->usage = usage_of(request);
  token_chunk chunk;
  request.output.push(last, chunk);
  send_chunk(request, std::move(chunk));
  forget(self, sequence);
}

caf::result<std::string> start(pointer self, const generate_request& asked,
                               const caf::actor& sink) {
  auto& state = self->state;
  if (state.is_down) return to_caf({errc::rank_lost, "the node's rank is lost", {}});
  if (static_cast<std::int32_t>(state.requests.size()) >= state.config.max_open_requests)
    return to_caf({errc::queue_full,
                   fmt::format("{} requests are open, at most {} may be", state.requests.size(),
                               state.config.max_open_requests),
                   {}});
  if (state.by_id.contains(asked.request_id))
    return to_caf({errc::invalid_argument,
                   fmt::format("request_id: {} is in use", asked.request_id), "request_id"});
  const auto seed = state.config.seed ? *state.config.seed : draw_seed();
  auto accepted = state.config.intake->accept(asked, seed);
  if (!accepted) return to_caf(accepted.error());

  const seq_id sequence{++state.sequences};
  const auto id =
    asked.request_id.empty() ? fmt::format("r{}", ++state.requests_seen) : asked.request_id;
  accepted->output.call_suffix = id;
  auto request = std::make_unique<gateway_request>(
    gateway_request{id,
                    {sequence, std::move(accepted->prompt), std::move(accepted->params),
                     asked.priority, accepted->cache_salt},
                    output_stream(state.config.intake->words(), std::move(accepted->output)),
                    sink});
  self->monitor(sink);
  if (state.config.on_accepted) state.config.on_accepted(request->sequence);
  if (state.rank) tell(self, *state.rank, submit_batch{request->sequence});
  state.by_id.emplace(id, sequence);
  state.requests.emplace(sequence, std::move(request));
  return id;
}

void deliver(pointer self, const chunk_batch& batch) {
  auto& state = self->state;
  for (const auto& start : batch.started) {
    const auto found = state.requests.find(start.sequence);
    if (found == state.requests.end()) continue;
    if (!std::exchange(found->second->has_started, true))
      tell_watcher(self, started_atom::value, state.config.replica, found->second->id,
                   start.cached_tokens);
    found->second->cached_tokens = start.cached_tokens;
  }
  for (const auto& it : batch.chunks) {
    const auto found = state.requests.find(it.sequence);
    if (found == state.requests.end()) continue;  // its client has left
    token_chunk chunk;
    auto& output = found->second->output;
    output.push(it, chunk);
    if (!chunk.finish && output.has_ended()) {
      // The answer is complete, its sequence does not know: what it still gives is dropped.
      output.finish_early(usage_of(*found->second), chunk);
      if (state.rank) tell(self, *state.rank, abort_atom::value, it.sequence);
    }
    const bool is_last = chunk.finish.has_value();
    send_chunk(*found->second, std::move(chunk));
    if (is_last) forget(self, it.sequence);
  }
}

void cancel(pointer self, seq_id sequence) {
  self->state.requests.at(sequence)->is_cancelled = true;
  if (self->state.rank)
    tell(self, *self->state.rank, abort_atom::value, sequence);
  else
    end_here(self, sequence, finish_reason::abort, errc::cancelled, "cancelled");
}

void on_sink_down(pointer self, const caf::actor_addr& gone) {
  std::vector<seq_id> orphans;
  for (const auto& [sequence, request] : self->state.requests)
    if (request->sink.address() == gone) orphans.push_back(sequence);
  for (const auto sequence : orphans) {
    if (self->state.rank) tell(self, *self->state.rank, abort_atom::value, sequence);
    forget(self, sequence);
  }
}

void on_rank_up(pointer self, const scheduler_actor& rank) {
  self->state.rank = rank;
  self->state.is_down = false;
  submit_batch waiting;
  for (const auto& [sequence, request] : self->state.requests) waiting.push_back(request->sequence);
  if (!waiting.empty()) tell(self, rank, std::move(waiting));
  tell_watcher(self, ready_atom::value, self->state.config.replica, true, std::string());
}

void give_back(pointer self, const std::vector<seq_id>& sequences) {
  for (const auto sequence : sequences) {
    tell_watcher(self, returned_atom::value, self->state.config.replica,
                 self->state.requests.at(sequence)->id);
    drop(self, sequence);
  }
}

void on_rank_down(pointer self, const std::string& reason, bool is_final) {
  auto& state = self->state;
  state.rank.reset();
  state.is_down = is_final;
  tell_watcher(self, ready_atom::value, state.config.replica, false, reason);
  const bool gives_back = static_cast<bool>(state.config.watcher);
  std::vector<seq_id> started;
  std::vector<seq_id> cancelled;
  std::vector<seq_id> returned;
  for (const auto& [sequence, request] : state.requests) {
    if (request->is_cancelled)
      cancelled.push_back(sequence);
    else if (request->has_started || (is_final && !gives_back))
      started.push_back(sequence);
    else if (gives_back)
      returned.push_back(sequence);
  }
  for (const auto sequence : cancelled)
    end_here(self, sequence, finish_reason::abort, errc::cancelled, "cancelled");
  log(severity::error, "rank {} is lost ({}): {} requests end, {} wait", state.config.replica,
      reason, started.size(), state.requests.size() - started.size());
  for (const auto sequence : started)
    end_here(self, sequence, finish_reason::error, errc::rank_lost,
             "the rank that ran this request was lost: " + reason);
  give_back(self, returned);
  if (is_final) tell_watcher(self, gone_atom::value, state.config.replica, reason);
}

}  // namespace

gateway_actor::behavior_type gateway(pointer self, gateway_config config) {
  self->state.config = std::move(config);
  self->set_down_handler([self](caf::down_msg& down) { on_sink_down(self, down.source); });
  return {
    [self](generate_atom, const generate_request& asked, const caf::actor& sink) {
      return start(self, asked, sink);
    },
    [self](cancel_atom, const std::string& id) {
      const auto found = self->state.by_id.find(id);
      if (found == self->state.by_id.end()) return false;
      cancel(self, found->second);
      return true;
    },
    [](credit_atom, const std::string&, std::int32_t) {},
    [](list_atom) { return request_list{}; },
    [](tick_atom) {},
    [self](const chunk_batch& batch) { deliver(self, batch); },
    [self](rank_up_atom, const scheduler_actor& rank) { on_rank_up(self, rank); },
    [self](rank_down_atom, const std::string& reason, bool is_final) {
      on_rank_down(self, reason, is_final);
    },
    [self](stop_atom) {
      while (!self->state.requests.empty())
        end_here(self, self->state.requests.begin()->first, finish_reason::error,
                 errc::server_shutdown, "the node stops");
      self->quit();
    },
    [self](stats_atom) {
      node_stats stats;
      stats.queued = static_cast<std::int32_t>(self->state.requests.size());
      return stats;
    },
  };
}

}  // namespace deepinfer
