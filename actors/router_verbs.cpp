#include "actors/router_verbs.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "actors/client_state.hpp"
#include "actors/gather.hpp"
#include "actors/rank_supervisor.hpp"
#include "messages/wire.hpp"
#include "runtime/base/counted.hpp"

namespace deepinfer {
namespace {

constexpr std::chrono::seconds part_timeout{5};
constexpr std::chrono::seconds flush_timeout{30};

template <class Answer>
using gathering_of = gathering<Answer, router_pointer>;

/// Who knows more of a request: its replica here, then the router; a link knows no state.
int rank_of(const request_info& it) {
  return it.state.empty() ? 2 : it.state == "routing" ? 1 : 0;
}

/// The oldest first, each once: one that was sent while replicas were asked has been told of twice,
/// and of one that a node elsewhere has the link tells what the router does not know.
void put_in_order(request_list& list) {
  auto told = std::exchange(list.requests, {});
  std::sort(told.begin(), told.end(), [](const auto& a, const auto& b) {
    return std::forward_as_tuple(a.id, rank_of(a)) < std::forward_as_tuple(b.id, rank_of(b));
  });
  auto& requests = list.requests;
  for (auto& it : told) {
    const bool is_known = !requests.empty() && requests.back().id == it.id;
    if (!it.state.empty()) {
      if (!is_known) requests.push_back(std::move(it));
      continue;
    }
    if (!is_known) continue;  // it ended here while the link was asked
    auto& known = requests.back();
    known.output_tokens = std::max(known.output_tokens, it.output_tokens);
    if (it.seed) known.seed = it.seed;
  }
  std::stable_sort(requests.begin(), requests.end(),
                   [](const auto& a, const auto& b) { return a.age_us > b.age_us; });
}

request_info info_of(const std::string& id, const router_state::open_request& it,
                     std::int64_t now_us) {
  request_info out;
  out.id = id;
  out.client_request_id = it.client_request_id;
  out.tenant = it.tenant;
  out.state = it.replica < 0 ? "routing" : it.has_started ? "decode" : "queued";
  out.replica = it.replica;
  out.prompt_tokens = it.prompt_tokens;
  out.seed = it.seed;
  out.age_us = now_us - it.arrived_us;
  return out;
}

node_health health_of(const router_state& state) {
  node_health out;
  out.node = state.links.node_name;
  out.replicas = state.core->replicas().ready();
  out.open_requests = static_cast<std::int32_t>(state.core->open());
  out.progress = 1.0;
  if (state.is_draining || state.is_closing) {
    out.state = health_state::draining;
    out.stage = "no new requests are taken";
  } else if (out.replicas > 0) {
    out.state = health_state::ready;
  } else {
    // A rank starts again and links try for ever: only what was lost for good has failed.
    const bool may_come = state.core->known() > 0;
    out.state = may_come ? health_state::loading : health_state::failed;
    if (may_come) out.progress = 0.0;  // nobody knows
    out.stage = "no replica can take requests";
    for (const auto& [replica, it] : state.replicas)
      if (!it.reason.empty()) out.stage += fmt::format("; {}: {}", it.link.name, it.reason);
  }
  return out;
}

caf::result<std::string> drain(router_pointer self, const std::string& bytes) {
  auto& state = self->state;
  const auto limit = from_wire<number_call>(bytes);
  if (!limit) return to_caf(limit.error());
  if (limit->value < 0)
    return to_caf({errc::invalid_argument,
                   fmt::format("drain: found {} ms, expected 0 or more", limit->value), "value"});
  state.is_draining = true;
  auto promise = self->make_response_promise<std::string>();
  const auto id = ++state.drains_seen;
  state.drains.emplace(id, promise);
  self->delayed_send(self, std::chrono::milliseconds(limit->value), wake_atom::value, id);
  end_drains(self);
  return promise;
}

caf::result<std::string> reset_prefix_cache(router_pointer self) {
  auto& state = self->state;
  state.core->forget_prefixes();
  auto promise = self->make_response_promise<std::string>();
  scheduler_order order;
  order.what = scheduler_order::verb::flush;
  // A rank that is down comes back without what it had cached; one that fails has kept it.
  gathering_of<bool> all(self, flush_timeout, [promise](gathered<bool>& got) mutable {
    if (!got.failures.empty()) {
      promise.deliver(std::move(got.failures.front()));
      return;
    }
    promise.deliver(to_wire(text_reply{counted(std::ssize(got.answers), "replica") + " reset"}));
  });
  for (const auto& [replica, it] : state.replicas)
    if (it.link.supervisor) all.ask(it.link.supervisor, order);
  return promise;
}

/// The answer to a question, as bytes.
template <class Answer, class Ask>
caf::result<std::string> as_bytes(router_pointer self, Ask&& asked) {
  auto promise = self->make_response_promise<std::string>();
  std::forward<Ask>(asked).then(
    [promise](const Answer& it) mutable { promise.deliver(to_wire(it)); },
    [promise](caf::error& why) mutable { promise.deliver(std::move(why)); });
  return promise;
}

}  // namespace

caf::typed_response_promise<node_stats> stats_of(router_pointer self) {
  const auto& replicas = self->state.replicas;
  auto promise = self->make_response_promise<node_stats>();
  node_stats sum;
  sum.queued = static_cast<std::int32_t>(self->state.core->waiting());
  const bool has_own = std::any_of(replicas.begin(), replicas.end(), [](const auto& it) {
    return static_cast<bool>(it.second.link.supervisor);
  });
  // Of a rank that dies while it is asked: a sum without its pool would be wrong. A node elsewhere
  // that does not answer is left out.
  gathering_of<node_stats> all(self, part_timeout,
                               [promise, sum, has_own](gathered<node_stats>& got) mutable {
                                 if (has_own && !got.failures.empty()) {
                                   promise.deliver(std::move(got.failures.front()));
                                   return;
                                 }
                                 for (const auto& part : got.answers) add(sum, part);
                                 promise.deliver(sum);
                               });
  for (const auto& [replica, it] : replicas)
    if (has_own && it.link.supervisor)
      all.ask(it.link.supervisor, stats_atom::value);
    else if (!has_own)
      all.ask(it.link.front, stats_atom::value);
  return promise;
}

caf::typed_response_promise<request_list> list_of(router_pointer self) {
  const auto& state = self->state;
  const auto now_us = now_us_of(self);
  auto promise = self->make_response_promise<request_list>();
  request_list sum;
  for (const auto& [id, it] : state.requests) {
    const auto at = state.replicas.find(it.replica);
    if (at == state.replicas.end() || !at->second.link.supervisor)
      sum.requests.push_back(info_of(id, it, now_us));
  }
  // What a replica that is going has is left out. Links answer at once, from what they know.
  gathering_of<request_list> all(
    self, part_timeout, [promise, sum](gathered<request_list>& got) mutable {
      for (auto& part : got.answers)
        std::move(part.requests.begin(), part.requests.end(), std::back_inserter(sum.requests));
      put_in_order(sum);
      promise.deliver(std::move(sum));
    });
  for (const auto& [replica, it] : state.replicas) all.ask(it.link.front, list_atom::value);
  return promise;
}

caf::result<std::string> answer_verb(router_pointer self, const std::string& verb,
                                     const std::string& bytes) {
  auto& state = self->state;
  if (verb == verb::health) return to_wire(health_of(state));
  if (verb == verb::stats)
    return as_bytes<node_stats>(self,
                                ask(self, router_actor{self}, 2 * part_timeout, stats_atom::value));
  if (verb == verb::requests)
    return as_bytes<request_list>(
      self, ask(self, router_actor{self}, 2 * part_timeout, list_atom::value));
  if (verb == verb::drain) return drain(self, bytes);
  if (verb == verb::resume) {
    state.is_draining = false;
    return to_wire(text_reply{"requests are taken"});
  }
  if (verb == verb::reset_prefix_cache) return reset_prefix_cache(self);
  if (!state.links.control)
    return to_caf({errc::not_found, fmt::format("verb: found '{}'", verb), "verb"});
  return self->delegate(state.links.control, call_atom::value, verb, bytes);
}

void end_drain(router_pointer self, std::uint64_t drain) {
  auto node = self->state.drains.extract(drain);
  if (node.empty()) return;
  const auto open = self->state.core->open();
  node.mapped().deliver(
    to_wire(text_reply{open == 0 ? std::string("0 open") : fmt::format("{} still open", open)}));
}

void end_drains(router_pointer self) {
  if (self->state.core->open() > 0) return;
  while (!self->state.drains.empty()) end_drain(self, self->state.drains.begin()->first);
}

}  // namespace deepinfer
