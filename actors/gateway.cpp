#include "actors/gateway.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "actors/gateway_parts.hpp"
#include "runtime/base/log.hpp"

namespace deepinfer {
namespace gateway_parts {

std::int64_t now_us(const gateway_state& state) {
  if (state.config.now_us) return state.config.now_us();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

client_sink* use_sink(pointer self, const caf::actor& sink) {
  auto [at, is_new] = self->state.sinks.try_emplace(sink.address());
  if (is_new) {
    at->second.handle = sink;
    self->monitor(sink);
  }
  ++at->second.requests;
  return &at->second;
}

void release_sink(pointer self, client_sink* sink) {
  if (--sink->requests > 0) return;
  self->demonitor(sink->handle.address());
  self->state.sinks.erase(sink->handle.address());
}

void arm_tick(pointer self) {
  auto& state = self->state;
  const auto& config = state.config;
  auto every = std::chrono::milliseconds::max();
  for (const auto timeout : {config.queue_timeout, config.slow_consumer_timeout})
    if (timeout.count() > 0) every = std::min(every, timeout / 4);
  if (state.has_tick || state.requests.empty() || every == std::chrono::milliseconds::max()) return;
  state.has_tick = true;
  every = std::clamp(every, std::chrono::milliseconds(1), std::chrono::milliseconds(1000));
  self->delayed_send(self, every, tick_atom::value);
}

}  // namespace gateway_parts

namespace {

using namespace gateway_parts;

constexpr const char* cancelled_text = "cancelled";

template <class... Args>
void tell_watcher(pointer self, Args&&... args) {
  const auto& config = self->state.config;
  if (config.watcher) tell(self, config.watcher, std::forward<Args>(args)...);
}

void touch(gateway_state& state, gateway_request& request) {
  if (std::exchange(request.is_touched, true)) return;
  state.touched.push_back(&request);
}

/// The scheduler knows nothing of a sequence any more.
void note_ended(gateway_state& state, const gateway_request& request, std::int32_t answer) {
  if (!request.what.has_ended(answer)) return;
  const auto sequence = request.what.sequence(answer).sequence;
  if (state.by_sequence.erase(sequence) > 0 && state.config.on_forgotten)
    state.config.on_forgotten(sequence);
}

void abort_sequences(pointer self, const gateway_request& request) {
  if (!self->state.rank) return;
  for (std::int32_t i = 0; i < request.what.answers(); ++i)
    if (!request.what.has_ended(i))
      tell(self, *self->state.rank, abort_atom::value, request.what.sequence(i).sequence);
}

void note_gone(gateway_state& state, gateway_request& request) {
  if (request.gone_in) return;
  request.gone_in = request.what.phase();
  state.counts.aborted(*request.gone_in);
}

/// Drops a request without a word to anybody.
void drop(pointer self, gateway_request& request) {
  auto& state = self->state;
  auto& what = request.what;
  state.counts.pending(-request.pending_counted);
  for (std::int32_t i = 0; i < what.answers(); ++i) {
    const auto sequence = what.sequence(i).sequence;
    if (state.by_sequence.erase(sequence) > 0 && state.config.on_forgotten)
      state.config.on_forgotten(sequence);
  }
  release_sink(self, request.sink);
  const auto number = what.sequence(0).sequence.value;
  state.by_id.erase(what.id());
  state.requests.erase(number);
}

void forget(pointer self, gateway_request& request) {
  const auto& state = self->state;
  const auto& what = request.what;
  if (state.config.log_requests != request_logging::off && is_logged(severity::info))
    log_event(severity::info, what.log_line(request.gone_in, now_us(state)),
              what.log_fields(now_us(state)));
  if (state.config.spans) {
    auto span = what.span(now_us(state));
    span.rank = rank_id{state.config.replica};
    state.config.spans->add(std::move(span));
  }
  tell_watcher(self, ended_atom::value, state.config.replica, what.id(),
               request_end{what.output_tokens(), {}, errc::ok});
  drop(self, request);
}

void tell_hold(pointer self, const gateway_request& request, bool holds) {
  if (!self->state.rank) return;
  for (std::int32_t i = 0; i < request.what.answers(); ++i)
    if (!request.what.has_ended(i))
      tell(self, *self->state.rank, hold_atom::value, request.what.sequence(i).sequence, holds);
}

/// Says what this message has brought, holds to the rank and one list of chunks to each sink, and
/// drops requests that are over.
void finish_turn(pointer self) {
  auto& state = self->state;
  const auto touched = std::exchange(state.touched, {});
  for (auto* request : touched) {
    request->is_touched = false;
    auto& credit = request->what.credit();
    if (const auto change = credit.hold_change()) tell_hold(self, *request, *change);
    state.counts.pending(credit.pending() - request->pending_counted);
    request->pending_counted = credit.pending();
    auto& sink = *request->sink;
    if (sink.due.chunks.empty()) continue;
    tell_from_outside(sink.handle, chunk_atom::value, std::exchange(sink.due, {}));
  }
  for (auto* request : touched)
    if (request->what.is_over()) forget(self, *request);
}

/// Ends all answers of a request that have not ended, here and now, and what waits for its client.
void end_here(pointer self, gateway_request& request, const forced_end& how) {
  auto& state = self->state;
  const auto now = now_us(state);
  for (std::int32_t i = 0; i < request.what.answers(); ++i) {
    request.what.end(i, how, now, request.sink->due.chunks);
    note_ended(state, request, i);
  }
  touch(state, request);
}

void note_preempted(gateway_state& state, const chunk_batch& batch) {
  if (!state.config.spans) return;
  for (const auto& it : batch.preempted) {
    const auto found = state.by_sequence.find(it.sequence);
    if (found == state.by_sequence.end()) continue;
    const auto [request, answer] = found->second;
    state.config.spans->note({request->what.id(), answer, rank_id{state.config.replica}, it.at_ns,
                              std::string(name_of(it.why))});
  }
}

void deliver(pointer self, const chunk_batch& batch) {
  auto& state = self->state;
  if (!state.rank)
    return;  // of one that was lost: its requests have ended, or start again elsewhere
  const auto now = now_us(state);
  for (const auto& start : batch.started) {
    const auto found = state.by_sequence.find(start.sequence);
    if (found == state.by_sequence.end()) continue;
    const auto [request, answer] = found->second;
    if (request->what.start(answer, start.cached_tokens, now))
      tell_watcher(self, started_atom::value, state.config.replica, request->what.id(),
                   start.cached_tokens);
  }
  note_preempted(state, batch);
  for (const auto& it : batch.chunks) {
    const auto found = state.by_sequence.find(it.sequence);
    if (found == state.by_sequence.end()) continue;  // its client has left
    const auto [request, answer] = found->second;
    const bool ends_early = request->what.push(answer, it, now, request->sink->due.chunks);
    if (ends_early && state.rank) tell(self, *state.rank, abort_atom::value, it.sequence);
    note_ended(state, *request, answer);
    touch(state, *request);
  }
  finish_turn(self);
}

/// What still runs is ended by the scheduler, where there is one; what only waits for its client is
/// ended here.
void cancel(pointer self, gateway_request& request) {
  auto& state = self->state;
  note_gone(state, request);
  request.is_cancelled = true;
  const forced_end how{finish_reason::abort, errc::cancelled, cancelled_text};
  if (!state.rank) return end_here(self, request, how);
  const auto now = now_us(state);
  for (std::int32_t i = 0; i < request.what.answers(); ++i)
    if (request.what.has_ended(i)) request.what.end(i, how, now, request.sink->due.chunks);
  abort_sequences(self, request);
  touch(state, request);
}

bool cancel(pointer self, const std::string& id) {
  if (drop_intake(self, id, {errc::cancelled, cancelled_text, {}})) return true;
  const auto found = self->state.by_id.find(id);
  if (found == self->state.by_id.end()) return false;
  cancel(self, *self->state.requests.at(found->second));
  finish_turn(self);
  return true;
}

void take(pointer self, const std::string& id, std::int32_t chunks) {
  auto& state = self->state;
  const auto found = state.by_id.find(id);
  if (found == state.by_id.end()) return;
  auto& request = *state.requests.at(found->second);
  request.what.take(chunks, now_us(state), request.sink->due.chunks);
  touch(state, request);
  finish_turn(self);
}

void on_down(pointer self, const caf::actor_addr& gone) {
  auto& state = self->state;
  if (state.worker && state.worker.address() == gone) {
    state.worker = nullptr;
    return drop_all_intakes(self, {errc::internal, "who tokenizes long prompts has died", {}});
  }
  const auto found = state.sinks.find(gone);
  if (found == state.sinks.end()) return;
  auto* sink = &found->second;
  ++sink->requests;  // it stays until all of them have gone
  drop_intakes_of(self, sink, {errc::cancelled, "the client has gone", {}});
  std::vector<gateway_request*> orphans;
  for (const auto& [number, request] : state.requests)
    if (request->sink == sink) orphans.push_back(request.get());
  for (auto* request : orphans) {
    note_gone(state, *request);
    abort_sequences(self, *request);
    forget(self, *request);
  }
  release_sink(self, sink);
}

void on_rank_up(pointer self, const scheduler_actor& rank) {
  auto& state = self->state;
  state.rank = rank;
  state.is_down = false;
  submit_batch waiting;
  for (const auto& [number, request] : state.requests)
    for (std::int32_t i = 0; i < request->what.answers(); ++i)
      if (!request->what.has_ended(i)) waiting.push_back(request->what.sequence(i));
  if (!waiting.empty()) tell(self, rank, std::move(waiting));
  for (const auto& [number, request] : state.requests)
    if (request->what.credit().is_held()) tell_hold(self, *request, true);
  tell_watcher(self, ready_atom::value, state.config.replica, true, std::string());
}

/// Answers that only wait for their client have lost nothing.
bool needs_rank(const open_request& what) {
  for (std::int32_t i = 0; i < what.answers(); ++i)
    if (!what.has_ended(i)) return true;
  return false;
}

/// Ends what still needs the rank.
void end_running(pointer self, gateway_request& request, const forced_end& how) {
  auto& state = self->state;
  const auto now = now_us(state);
  for (std::int32_t i = 0; i < request.what.answers(); ++i) {
    if (request.what.has_ended(i)) continue;
    request.what.end(i, how, now, request.sink->due.chunks);
    note_ended(state, request, i);
  }
  touch(state, request);
}

void on_rank_down(pointer self, const std::string& reason, bool is_final) {
  auto& state = self->state;
  state.rank.reset();
  state.is_down = is_final;
  tell_watcher(self, ready_atom::value, state.config.replica, false, reason);
  const bool gives_back = static_cast<bool>(state.config.watcher);
  std::size_t ended = 0;
  std::vector<gateway_request*> returned;
  for (const auto& [number, request] : state.requests) {
    if (!needs_rank(request->what)) continue;
    if (request->is_cancelled) {
      end_running(self, *request, {finish_reason::abort, errc::cancelled, cancelled_text});
    } else if (gives_back && !request->what.has_started()) {
      returned.push_back(request.get());
    } else if (request->what.has_started() || is_final) {
      ++ended;
      end_running(self, *request,
                  {finish_reason::error, errc::rank_lost,
                   "the rank that ran this request was lost: " + reason});
    }
  }
  finish_turn(self);
  log(severity::error, "rank {} is lost ({}): {} requests end, {} wait", state.config.replica,
      reason, ended, state.requests.size());
  for (auto* request : returned) {
    tell_watcher(self, returned_atom::value, state.config.replica, request->what.id());
    drop(self, *request);
  }
  if (is_final) tell_watcher(self, gone_atom::value, state.config.replica, reason);
}

std::int64_t us_of(std::chrono::milliseconds time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

/// Clients that take nothing, and requests that wait too long for their start.
void tick(pointer self) {
  auto& state = self->state;
  const auto& config = state.config;
  state.has_tick = false;
  const auto now = now_us(state);
  for (const auto& [number, request] : state.requests) {
    auto& what = request->what;
    const auto& credit = what.credit();
    if (config.slow_consumer_timeout.count() > 0 &&
        credit.is_slow(now, us_of(config.slow_consumer_timeout))) {
      state.counts.slow();
      abort_sequences(self, *request);
      end_here(self, *request,
               {finish_reason::error, errc::slow_consumer,
                fmt::format("the client has taken nothing for {} ms, {} chunks wait for it",
                            config.slow_consumer_timeout.count(), credit.pending())});
    } else if (config.queue_timeout.count() > 0 && !what.has_started() &&
               now - what.arrived_us() >= us_of(config.queue_timeout)) {
      state.counts.refused("queue_timeout");
      abort_sequences(self, *request);
      end_here(self, *request,
               {finish_reason::error, errc::overloaded,
                fmt::format("the request has not started within {} ms, the node's queue_timeout",
                            config.queue_timeout.count())});
    }
  }
  finish_turn(self);
  arm_tick(self);
}

request_list list(const gateway_state& state) {
  request_list out;
  const auto now = now_us(state);
  for (const auto& [number, request] : state.requests) {
    out.requests.push_back(request->what.info(now));
    out.requests.back().replica = state.config.replica;
  }
  for (const auto& [id, it] : state.intakes) {
    request_info info;
    info.id = id;
    info.client_request_id = it.job->asked.client_request_id;
    info.tenant = it.job->asked.tenant;
    info.state = name_of(request_phase::queued);
    info.replica = state.config.replica;
    info.age_us = now - it.arrived_us;
    out.requests.push_back(std::move(info));
  }
  return out;
}

node_stats stats_of(const gateway_state& state) {
  node_stats out;
  for (const auto& [number, request] : state.requests)
    ++(request->what.has_started() ? out.running : out.queued);
  out.queued += static_cast<std::int32_t>(state.intakes.size());
  return out;
}

/// Complete answers that wait for their client go out as they are, the others end.
void stop(pointer self) {
  const error why{errc::server_shutdown, "the node stops", {}};
  drop_all_intakes(self, why);
  for (const auto& [number, request] : self->state.requests) {
    auto& what = request->what;
    what.let_go(now_us(self->state), request->sink->due.chunks);
    end_here(self, *request, {finish_reason::error, why.code, why.message});
  }
  finish_turn(self);
  self->quit();
}

}  // namespace

gateway_actor::behavior_type gateway(pointer self, gateway_config config) {
  self->state.config = std::move(config);
  self->state.counts = request_counts(self->state.config.counts);
  self->set_down_handler([self](caf::down_msg& down) { on_down(self, down.source); });
  return {
    [self](generate_atom, generate_request& asked, const caf::actor& sink) {
      return generate(self, asked, sink);
    },
    [self](cancel_atom, const std::string& id) { return cancel(self, id); },
    [self](credit_atom, const std::string& id, std::int32_t chunks) { take(self, id, chunks); },
    [self](list_atom) { return list(self->state); },
    [self](tick_atom) { tick(self); },
    [self](const engine_settings& settings) {
      self->state.config.queue_timeout = settings.server.queue_timeout;
      self->state.config.log_requests = settings.observability.log_requests;
    },
    [self](const chunk_batch& batch) { deliver(self, batch); },
    [self](rank_up_atom, const scheduler_actor& rank) { on_rank_up(self, rank); },
    [self](rank_down_atom, const std::string& reason, bool is_final) {
      on_rank_down(self, reason, is_final);
    },
    [self](stop_atom) { stop(self); },
    [self](stats_atom) { return stats_of(self->state); },
  };
}

}  // namespace deepinfer
