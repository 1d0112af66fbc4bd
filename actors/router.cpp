#include "actors/router.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "actors/client_state.hpp"
#include "actors/request_log.hpp"
#include "actors/router_ends.hpp"
#include "actors/router_verbs.hpp"
#include "runtime/base/log.hpp"
#include "runtime/core/prompt_outline.hpp"

namespace deepinfer {
namespace {

using pointer = router_pointer;
using open_request = router_state::open_request;

static_assert(static_cast<int>(routing_rule::round_robin) ==
              static_cast<int>(route_rule::round_robin));

void pump(pointer self);

const error closing{errc::server_shutdown, "the node stops", {}};
const error draining{errc::draining, "the node is draining: it takes no new requests", {}};

void count_refusal(const router_state& state, errc code) {
  if (!state.links.counts) return;
  const char* reason = nullptr;
  switch (code) {
  case errc::queue_full: reason = "queue_full"; break;
  case errc::overloaded: reason = "queue_timeout"; break;
  case errc::draining: reason = "draining"; break;
  case errc::not_ready:
  case errc::rank_lost: reason = "not_ready"; break;
  default: return;
  }
  state.links.counts->add(metric::queue_rejections_total, 1.0, {reason});
}

void watch_sink(pointer self, const caf::actor& sink) {
  if (++self->state.sinks[sink.address()] == 1) self->monitor(sink);
}

void wait_again(open_request& it) {
  it.replica = -1;
  it.attempt = 0;
}

void on_accepted(pointer self, const std::string& id, std::uint64_t attempt) {
  const auto found = self->state.requests.find(id);
  if (found == self->state.requests.end() || found->second.attempt != attempt) return;
  auto& answer = found->second.answer;
  if (answer) answer->deliver(id);
  answer.reset();
}

void on_refused(pointer self, const std::string& id, std::uint64_t attempt, const error& why) {
  auto& state = self->state;
  const auto found = state.requests.find(id);
  if (found == state.requests.end() || found->second.attempt != attempt) return;
  auto& it = found->second;
  const auto replica = it.replica;
  if (may_differ_elsewhere(why.code) && !it.is_cancelled && !state.is_closing) {
    if (state.core->refuse(replica, id, now_us_of(self))) {
      wait_again(it);
    } else {
      count_refusal(state, why.code);
      end_with(self, id, why);
    }
  } else {
    state.core->ended(replica, id, 0);
    end_with(self, id, why);
  }
  pump(self);
}

void send(pointer self, const request_route& route) {
  auto& state = self->state;
  auto& it = state.requests.at(route.id);
  const auto& link = state.replicas.at(route.replica).link;
  const auto attempt = ++state.attempts;
  it.replica = route.replica;
  it.attempt = attempt;
  if (state.links.counts) state.links.counts->add(metric::router_requests_total, 1.0, {link.name});
  // One elsewhere may let it wait in its own queue, as long as it sees fit; its leaving is told.
  auto asked = *it.asked;
  asked.waited_us = now_us_of(self) - it.arrived_us;
  asked.is_forwarded = asked.is_forwarded || link.is_peer;
  self->request(link.front, caf::infinite, generate_atom::value, std::move(asked), it.sink)
    .then([self, id = route.id, attempt](const std::string&) { on_accepted(self, id, attempt); },
          [self, id = route.id, attempt](caf::error& why) {
            on_refused(self, id, attempt, from_caf(why));
          });
}

void set_gauges(const router_state& state) {
  auto* counts = state.links.counts;
  if (!counts) return;
  const auto running = state.core->started();
  counts->set(metric::num_requests_running, static_cast<double>(running));
  counts->set(metric::num_requests_waiting, static_cast<double>(state.core->open() - running));
}

void set_replica_gauges(const router_state& state) {
  auto* counts = state.links.counts;
  if (!counts) return;
  for (const auto& [replica, it] : state.replicas)
    if (it.link.supervisor) counts->set(metric::ready, it.is_ready ? 1.0 : 0.0, {it.link.name});
}

void arm_tick(pointer self) {
  auto& state = self->state;
  const auto next_us = state.core->next_deadline_us();
  if (next_us < 0 || (state.tick_at_us >= 0 && state.tick_at_us <= next_us)) return;
  state.tick_at_us = next_us;
  const auto wait_us = std::max<std::int64_t>(0, next_us - now_us_of(self));
  self->delayed_send(self, std::chrono::microseconds(wait_us), tick_atom::value);
}

/// One front may stand for several: it was taken out, and has come back under another number.
bool is_front_of_any(const router_state& state, const caf::actor_addr& front) {
  return std::any_of(state.replicas.begin(), state.replicas.end(),
                     [&](const auto& it) { return it.second.link.front.address() == front; });
}

/// Nobody speaks of it any more.
void forget_replica(pointer self, std::int32_t replica) {
  auto& state = self->state;
  const auto node = state.replicas.extract(replica);
  const auto front = node.mapped().link.front.address();
  if (!is_front_of_any(state, front)) self->demonitor(front);
}

/// Those that were taken out, and whose last request has ended.
void let_replicas_go(pointer self) {
  using stay = router_state::replica_state::stay;
  auto& state = self->state;
  for (auto at = state.replicas.begin(); at != state.replicas.end();) {
    const auto replica = at->first;
    auto& it = (at++)->second;
    if (it.stays != stay::leaving || state.core->replicas().has(replica)) continue;
    it.stays = stay::left;
    if (it.link.on_left)
      it.link.on_left();
    else
      forget_replica(self, replica);
  }
}

/// After whatever has happened: what can be sent is sent, what has ended is told.
void pump(pointer self) {
  auto& state = self->state;
  for (const auto& refused : state.core->take_refused(now_us_of(self))) {
    count_refusal(state, refused.why.code);
    end_with(self, refused.id, refused.why);
  }
  for (const auto& route : state.core->take_routes()) send(self, route);
  let_replicas_go(self);
  set_gauges(state);
  end_drains(self);
  arm_tick(self);
}

/// But for how the prompt begins, which only one that is taken is looked at for.
route_request route_of(const router_state& state, const generate_request& request) {
  const auto& sampling = request.sampling;
  const auto n = std::clamp(sampling.n, 1, std::max(1, state.links.max_n));
  route_request out;
  out.id = request.request_id;
  out.tenant = request.tenant;
  out.session = request.session;
  out.prompt_tokens = about_tokens(request);
  out.output_tokens =
    sampling.max_tokens
      ? std::int64_t{n} * std::clamp(*sampling.max_tokens, 0, std::max(0, state.links.max_outputs))
      : -1;
  out.priority = request.priority;
  out.sequences = n;
  out.is_forwarded = request.is_forwarded;
  return out;
}

std::string free_id(router_state& state) {
  auto id = fmt::format("r{}", ++state.named);
  while (state.requests.contains(id)) id = fmt::format("r{}", ++state.named);
  return id;
}

/// What an operator, a sink's end and the log want to know of it.
open_request open_request_of(pointer self, const generate_request& request,
                             const route_request& route, const caf::actor& sink) {
  open_request it;
  it.sink = sink;
  it.tenant = request.tenant;
  it.client_request_id = request.client_request_id;
  it.trace_id = trace_of(request.traceparent);
  it.answers = route.sequences;
  it.prompt_tokens = static_cast<std::int32_t>(route.prompt_tokens);
  it.seed = request.sampling.seed;
  it.arrived_us = now_us_of(self);
  return it;
}

caf::result<std::string> generate(pointer self, generate_request& request, const caf::actor& sink) {
  auto& state = self->state;
  if (request.request_id.empty()) request.request_id = free_id(state);
  const auto id = request.request_id;
  auto route = route_of(state, request);
  auto it = open_request_of(self, request, route, sink);
  it.asked = std::make_shared<const generate_request>(std::move(request));
  auto taken = state.is_closing    ? result<void>(tl::unexpected<error>(closing))
               : state.is_draining ? result<void>(tl::unexpected<error>(draining))
                                   : state.core->check(route);
  if (taken) {
    route.prefix = outline_of(*it.asked).prefix;
    taken = state.core->submit(std::move(route), it.arrived_us);
  }
  if (!taken) {
    if (!state.is_closing) count_refusal(state, taken.error().code);
    log_end(self, id, it, {0, std::string(name_of(finish_reason::error)), taken.error().code});
    pump(self);
    return to_caf(taken.error());
  }
  auto promise = self->make_response_promise<std::string>();
  it.answer = promise;
  watch_sink(self, sink);
  state.requests.emplace(id, std::move(it));
  pump(self);
  return promise;
}

caf::result<bool> cancel(pointer self, const std::string& id) {
  auto& state = self->state;
  const auto found = state.requests.find(id);
  if (found == state.requests.end()) return false;
  if (state.core->cancel(id)) {
    end_cancelled(self, id);
    pump(self);
    return true;
  }
  found->second.is_cancelled = true;
  return self->delegate(state.replicas.at(found->second.replica).link.front, cancel_atom::value,
                        id);
}

/// Its replica cancels what it has of the sink's by itself; what waits ends here.
void on_sink_down(pointer self, const caf::actor_addr& gone) {
  auto& state = self->state;
  std::vector<std::string> waiting;
  for (auto& [id, it] : state.requests) {
    if (it.sink.address() != gone) continue;
    it.is_cancelled = true;
    if (it.replica < 0) waiting.push_back(id);
  }
  state.sinks.erase(gone);
  for (const auto& id : waiting) {
    state.core->cancel(id);
    end_gone(self, id);
  }
  pump(self);
}

/// A front that leaves ends nothing: what it had started is told so here.
void on_front_down(pointer self, std::int32_t replica) {
  auto& state = self->state;
  const auto name = state.replicas.at(replica).link.name;
  const error why{errc::rank_lost, fmt::format("replica {} is lost", name), {}};
  if (!state.is_closing) log(severity::warning, "{}", why.message);
  for (const auto& id : state.core->lose_replica(replica, why, now_us_of(self)))
    end_with(self, id, state.is_closing ? closing : why);
  std::vector<std::string> dropped;
  for (auto& [id, it] : state.requests) {
    if (it.replica != replica) continue;
    wait_again(it);
    if (it.is_cancelled) dropped.push_back(id);
  }
  for (const auto& id : dropped) {
    state.core->cancel(id);
    end_cancelled(self, id);
  }
  state.replicas.erase(replica);
  set_replica_gauges(state);
  pump(self);
}

void on_down(pointer self, const caf::actor_addr& gone) {
  auto& state = self->state;
  if (state.sinks.contains(gone)) return on_sink_down(self, gone);
  std::vector<std::int32_t> lost;
  for (const auto& [replica, it] : state.replicas)
    if (it.link.front.address() == gone) lost.push_back(replica);
  for (const auto replica : lost) on_front_down(self, replica);
}

void on_ended(pointer self, std::int32_t replica, const std::string& id, const request_end& end) {
  if (!self->state.core->ended(replica, id, end.outputs)) return;
  auto it = extract(self, id);
  if (it.answer) it.answer->deliver(id);
  if (!end.finish.empty()) log_end(self, id, it, end);
  pump(self);
}

void on_returned(pointer self, std::int32_t replica, const std::string& id) {
  auto& state = self->state;
  if (!state.core->give_back(replica, id, now_us_of(self))) return;
  auto& it = state.requests.at(id);
  wait_again(it);
  if (it.is_cancelled) {
    state.core->cancel(id);
    end_cancelled(self, id);
  }
  pump(self);
}

void on_ready(pointer self, std::int32_t replica, bool is_ready, const std::string& reason) {
  auto& state = self->state;
  const auto found = state.replicas.find(replica);
  if (found == state.replicas.end()) {
    state.announced[replica] = {is_ready, reason};
    return;
  }
  found->second.is_ready = is_ready;
  found->second.reason = reason;
  state.core->set_ready(replica, is_ready);
  set_replica_gauges(state);
  pump(self);
}

void on_gone(pointer self, std::int32_t replica, const std::string& reason) {
  auto& state = self->state;
  const auto found = state.replicas.find(replica);
  if (found == state.replicas.end()) return;
  if (found->second.stays == router_state::replica_state::stay::left)
    return forget_replica(self, replica);
  found->second.is_ready = false;
  found->second.reason = reason;
  state.core->retire_replica(
    replica, {errc::rank_lost,
              fmt::format("replica {} is lost for good: {}", found->second.link.name, reason),
              {}});
  set_replica_gauges(state);
  pump(self);
}

void join(pointer self, const replica_link& link) {
  auto& state = self->state;
  const auto replica = link.replica;
  const bool is_watched = is_front_of_any(state, link.front.address());
  if (!state.replicas.emplace(replica, router_state::replica_state{link, false, {}, {}}).second) {
    log(severity::error, "replica {} joins twice: the second time is ignored", replica);
    return;
  }
  if (!is_watched) self->monitor(link.front);
  state.core->add_replica(replica, std::max(1, link.slots),
                          link.supervisor ? replica_place::here : replica_place::elsewhere,
                          link.ahead);
  const auto known = state.announced.extract(replica);
  if (!known.empty()) return on_ready(self, replica, known.mapped().first, known.mapped().second);
  set_replica_gauges(state);
}

void leave(pointer self, std::int32_t replica) {
  auto& state = self->state;
  const auto found = state.replicas.find(replica);
  if (found == state.replicas.end()) return;
  found->second.is_ready = false;
  found->second.reason = "it was taken out";
  found->second.stays = router_state::replica_state::stay::leaving;
  state.core->retire_replica(
    replica,
    {errc::not_ready, fmt::format("replica {} was taken out", found->second.link.name), {}});
  set_replica_gauges(state);
  pump(self);
}

void close(pointer self) {
  auto& state = self->state;
  state.is_closing = true;
  std::vector<std::string> waiting;
  for (const auto& [id, it] : state.requests)
    if (it.replica < 0) waiting.push_back(id);
  for (const auto& id : waiting) {
    state.core->cancel(id);
    end_with(self, id, closing);
  }
  pump(self);
}

}  // namespace

router_config router_config_of(const engine_settings& settings) {
  router_config out;
  out.rules.rule = static_cast<route_rule>(settings.server.routing);
  out.rules.imbalance_tokens = settings.engine.max_num_batched_tokens;
  out.fair_shares = settings.server.fair_shares;
  out.max_queued = settings.server.max_queued_requests;
  out.queue_timeout_us =
    std::chrono::duration_cast<std::chrono::microseconds>(settings.server.queue_timeout).count();
  return out;
}

router_actor::behavior_type router(pointer self, router_links links) {
  auto& state = self->state;
  state.core.emplace(links.config);
  state.links = std::move(links);
  set_replica_gauges(state);
  self->set_down_handler([self](caf::down_msg& down) { on_down(self, down.source); });
  return {
    [self](generate_atom, generate_request& request, const caf::actor& sink) {
      return generate(self, request, sink);
    },
    [self](cancel_atom, const std::string& id) { return cancel(self, id); },
    [self](credit_atom, const std::string& id, std::int32_t chunks) {
      const auto found = self->state.requests.find(id);
      if (found == self->state.requests.end() || found->second.replica < 0) return;
      tell(self, self->state.replicas.at(found->second.replica).link.front, credit_atom::value, id,
           chunks);
    },
    [self](list_atom) { return list_of(self); },
    [self](stats_atom) { return stats_of(self); },
    [self](call_atom, const std::string& verb, const std::string& bytes) {
      return answer_verb(self, verb, bytes);
    },
    [self](stop_atom) {
      close(self);
      while (!self->state.drains.empty()) end_drain(self, self->state.drains.begin()->first);
      self->quit();
    },
    [self](started_atom, std::int32_t replica, const std::string& id, std::int32_t cached) {
      if (!self->state.core->started(replica, id, cached)) return;
      auto& it = self->state.requests.at(id);
      it.has_started = true;
      it.asked.reset();
      set_gauges(self->state);
    },
    [self](ended_atom, std::int32_t replica, const std::string& id, const request_end& end) {
      on_ended(self, replica, id, end);
    },
    [self](returned_atom, std::int32_t replica, const std::string& id) {
      on_returned(self, replica, id);
    },
    [self](ready_atom, std::int32_t replica, bool is_ready, const std::string& reason) {
      on_ready(self, replica, is_ready, reason);
    },
    [self](slots_atom, std::int32_t replica, std::int32_t slots) {
      self->state.core->set_slots(replica, slots, ahead_of(slots));
      pump(self);
    },
    [self](gone_atom, std::int32_t replica, const std::string& reason) {
      on_gone(self, replica, reason);
    },
    [self](join_atom, const replica_link& link) { join(self, link); },
    [self](leave_atom, std::int32_t replica) { leave(self, replica); },
    [self](join_atom, const control_actor& control) { self->state.links.control = control; },
    [self](const engine_settings& now) {
      self->state.core->set_rules(router_config_of(now));
      self->state.links.log_requests = now.observability.log_requests;
    },
    [self](close_atom) { close(self); },
    [self](tick_atom) {
      self->state.tick_at_us = -1;
      pump(self);
    },
    [self](wake_atom, std::uint64_t drain) { end_drain(self, drain); },
  };
}

}  // namespace deepinfer
