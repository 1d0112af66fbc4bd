#include "actors/remote_link.hpp"

#include <algorithm>
#include <set>

#include <caf/io/middleman.hpp>
#include <caf/openssl/manager.hpp>
#include <fmt/format.h>

#include "actors/actor_host.hpp"
#include "actors/client_state.hpp"
#include "actors/link_watchers.hpp"
#include "actors/request_input.hpp"
#include "messages/wire.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer {
namespace {

using pointer = remote_link_pointer;
using bytes_promise = caf::typed_response_promise<std::string>;
using clock = std::chrono::steady_clock;

void connect(pointer self);

error not_connected(pointer self) {
  const auto& why = self->state.last_failure;
  return {
    errc::not_ready,
    fmt::format("no connection to the node at {}{}{}", place(self), why.empty() ? "" : ": ", why),
    {}};
}

/// Whoever waits for the connection waits no longer.
void answer_waiting(pointer self, const error& why) {
  for (auto& promise : std::exchange(self->state.waiting, {})) promise.deliver(to_caf(why));
}

void retry(pointer self) {
  auto& state = self->state;
  const auto draw =
    split_mix64(static_cast<std::uint64_t>(clock::now().time_since_epoch().count()));
  const auto share = static_cast<double>(draw >> 11) * 0x1p-53;
  self->delayed_send(self, state.pace.next(share), link_tick_atom::value);
}

void failed(pointer self, const error& why) {
  auto& state = self->state;
  if (state.last_failure != why.message)
    log(severity::info, "node at {}: {}", place(self), why.message);
  state.last_failure = why.message;
  tell_ready(self, false, why.message);
  const bool is_refusal = why.code == errc::unauthenticated || why.code == errc::invalid_argument;
  const bool is_late = clock::now() - state.trying_since >= state.options.wait_timeout;
  if (is_refusal)
    answer_waiting(self, why);
  else if (is_late)
    answer_waiting(self, not_connected(self));
  // Who waits for the first connection is told when the time is over, so it goes on until then.
  if (state.options.reconnects || !state.waiting.empty()) retry(self);
}

void opened(pointer self, const caf::actor& session, const std::string& bytes) {
  auto& state = self->state;
  const auto reply = from_wire<hello_reply>(bytes);
  if (!reply || !session) return failed(self, {errc::internal, "its hello has no sense", {}});
  state.session = session;
  state.node = reply->node;
  state.last_failure.clear();
  state.knows_model = false;
  state.pace.succeeded();
  self->monitor(session);
  for (auto& promise : std::exchange(state.waiting, {})) promise.deliver(state.node);
  ++state.connections;
  ask_health(self, state.connections);
}

/// A hello may get no answer: the library mistakes a fresh connection for one that has just ended
/// where both had the same descriptor at the node. It is soon said again, each time a little later;
/// heartbeats end such a connection.
std::chrono::milliseconds hello_time_limit(const remote_link_state& state) {
  const auto failures = std::min(state.pace.failures(), 4);
  return std::min(state.options.connect_timeout,
                  std::chrono::milliseconds(1'000 * (1 << failures)));
}

void say_hello(pointer self, const caf::strong_actor_ptr& door) {
  const auto& options = self->state.options;
  if (!door) return failed(self, {errc::not_ready, "it has no door", {}});
  self
    ->request(caf::actor_cast<caf::actor>(door), hello_time_limit(self->state), hello_atom::value,
              wire_version, options.api_key, options.name)
    .then(
      [self](const caf::actor& session, const std::string& bytes) { opened(self, session, bytes); },
      [self](const caf::error& why) { failed(self, from_remote(why)); });
}

/// The first where the other side hung up. The second with an account of it is a port that could
/// not be reached, and without one a connection that TLS ended on this side.
bool was_closed_at_once(const caf::error& why) {
  return why == caf::sec::disconnect_during_handshake ||
         (why == caf::sec::cannot_connect_to_node && why.context().empty());
}

/// Both ports of a node are numbers of one machine and easily taken for each other.
error connect_failure(const caf::error& why) {
  if (why == caf::sec::malformed_basp_message)
    return {errc::invalid_argument,
            "what answers there speaks another protocol, as HTTP: expected a node's actor port "
            "(--actor-port, 4242 by default)",
            "connect"};
  if (was_closed_at_once(why))
    return {errc::not_ready,
            "something listens there, but the connection was closed before it stood, as with TLS "
            "on one side only or with certificates that do not fit (--actor-tls-certificate, "
            "--actor-tls-key, --actor-tls-ca)",
            {}};
  return {errc::not_ready, "nobody answers", {}};
}

void connect(pointer self) {
  auto& state = self->state;
  const auto& options = state.options;
  if (state.session) return;
  ask(self, state.network, options.connect_timeout, caf::connect_atom::value, options.to.host,
      options.to.port)
    .then([self](const caf::node_id&, const caf::strong_actor_ptr& door,
                 const std::set<std::string>&) { say_hello(self, door); },
          [self](const caf::error& why) { failed(self, connect_failure(why)); });
}

void let_sink_go(pointer self, const caf::actor& sink) {
  auto& sinks = self->state.sinks;
  const auto found = sinks.find(sink.address());
  if (found == sinks.end() || --found->second > 0) return;
  self->demonitor(sink);
  sinks.erase(found);
}

void note_finish(remote_link_state::open_request& it, const token_chunk& chunk) {
  if (!chunk.finish) return;
  it.finished[chunk.index] = chunk.finish->reason;
  if (chunk.finish->code != errc::ok) it.code = chunk.finish->code;
}

/// One that ends without a finish had a client that has gone.
request_end end_of(const remote_link_state::open_request& it) {
  request_end out{it.outputs, {}, it.code, it.seed};
  for (const auto& [answer, reason] : it.finished)
    out.finish += fmt::format("{}{}", out.finish.empty() ? "" : ",", name_of(reason));
  if (out.finish.empty()) out.finish = "gone";
  return out;
}

/// The node has not taken it: the error that answers its start says all, and who asked may try
/// another node.
void forget_untaken(pointer self, const std::string& id) {
  auto node = self->state.requests.extract(id);
  if (node.empty()) return;
  self->state.open.forget(id);
  let_sink_go(self, node.mapped().sink);
}

void forget(pointer self, const std::string& id) {
  const auto found = self->state.requests.find(id);
  if (found == self->state.requests.end()) return;
  const auto end = end_of(found->second);
  forget_untaken(self, id);
  for (const auto& it : self->state.watchers)
    tell(self, it.actor, ended_atom::value, it.number, id, end);
}

/// Ends a request here. Its sink gets the last chunks.
void end_here(pointer self, const std::string& id, errc code, const std::string& message) {
  chunk_list list;
  list.chunks = self->state.open.end(id, code, message);
  const auto found = self->state.requests.find(id);
  if (found == self->state.requests.end()) return;
  for (const auto& chunk : list.chunks) note_finish(found->second, chunk);
  tell_from_outside(found->second.sink, chunk_atom::value, std::move(list));
  forget(self, id);
}

void end_all(pointer self, errc code, const std::string& message) {
  for (const auto& id : self->state.open.ids()) {
    const auto found = self->state.requests.find(id);
    if (found != self->state.requests.end() && !found->second.is_taken)
      forget_untaken(self, id);
    else
      end_here(self, id, code, message);
  }
  for (auto& [ticket, promise] : std::exchange(self->state.due, {}))
    promise.deliver(to_caf({code, message, {}}));
}

void on_lost(pointer self) {
  auto& state = self->state;
  const auto message = fmt::format("the connection to the node at {} was lost", place(self));
  log(severity::warning, "{}, and with it {}", message,
      counted(static_cast<std::int64_t>(state.open.size()), "open request"));
  state.session = nullptr;
  state.is_polling = false;
  state.last_failure = "the connection was lost";
  end_all(self, errc::rank_lost, message);
  tell_ready(self, false, message);
  state.trying_since = clock::now();
  if (state.options.reconnects) retry(self);
}

}  // namespace

/// Two nodes that connect to each other may lose a session without a word: the library keeps one
/// connection for both, and who closes it tells nothing of it over the one that replaces it.
void on_silent(pointer self, std::uint64_t connection) {
  const auto session = self->state.session;
  if (!session || connection != self->state.connections) return;
  self->demonitor(session);
  on_lost(self);
  // Where it lives all the same, its requests end with it.
  caf::anon_send_exit(session, caf::exit_reason::remote_link_unreachable);
}

namespace {

void on_sink_down(pointer self, const caf::actor_addr& gone) {
  auto& state = self->state;
  std::vector<std::string> orphans;
  for (const auto& [id, it] : state.requests)
    if (it.sink.address() == gone) orphans.push_back(id);
  for (const auto& id : orphans) {
    if (state.session) tell_remote(self, state.session, cancel_atom::value, id);
    forget(self, id);
  }
}

/// Asks the session for an answer, which is due until it comes or the connection is lost.
/// `on_answer` is told before whoever asked: null, or the error.
template <class Answer, class... Args>
caf::typed_response_promise<Answer> ask_node(pointer self, std::chrono::milliseconds limit,
                                             std::function<void(const error*)> on_answer,
                                             Args&&... args) {
  auto& state = self->state;
  auto promise = self->template make_response_promise<Answer>();
  if (!state.session) {
    promise.deliver(to_caf(not_connected(self)));
    return promise;
  }
  const auto ticket = ++state.tickets;
  state.due.emplace(ticket, static_cast<caf::response_promise>(promise));
  self->request(state.session, limit, std::forward<Args>(args)...)
    .then(
      [self, ticket, on_answer](Answer& answer) {
        auto node = self->state.due.extract(ticket);
        if (node.empty()) return;
        if (on_answer) on_answer(nullptr);
        node.mapped().deliver(std::move(answer));
      },
      [self, ticket, on_answer](const caf::error& why) {
        auto node = self->state.due.extract(ticket);
        if (node.empty()) return;
        const auto failure = from_remote(why);
        if (on_answer) on_answer(&failure);
        node.mapped().deliver(to_caf(failure));
      });
  return promise;
}

bytes_promise start(pointer self, generate_request request, const caf::actor& sink) {
  auto& state = self->state;
  if (const auto whole = check_input(request); !whole) {
    auto promise = self->make_response_promise<std::string>();
    promise.deliver(to_caf(whole.error()));
    return promise;
  }
  if (request.request_id.empty())
    request.request_id = fmt::format("{}-{}", state.options.name, ++state.tickets);
  const auto id = request.request_id;
  if (state.session && !state.open.open(id, request.sampling.n)) {
    auto promise = self->make_response_promise<std::string>();
    promise.deliver(
      to_caf({errc::invalid_argument, fmt::format("request_id: {} is in use", id), "request_id"}));
    return promise;
  }
  remote_link_state::open_request it;
  it.sink = sink;
  it.seed = request.sampling.seed;
  it.has_own_window = request.window > 0;
  if (!it.has_own_window) request.window = wire_window;
  if (state.session) {
    if (state.sinks[sink.address()]++ == 0) self->monitor(sink);
    state.requests.emplace(id, std::move(it));
  }
  const auto on_answer = [self, id](const error* why) {
    const auto found = self->state.requests.find(id);
    if (!why) {
      if (found != self->state.requests.end()) found->second.is_taken = true;
      return;
    }
    // It may run there all the same.
    if (why->code == errc::deadline_exceeded && self->state.session)
      tell_remote(self, self->state.session, cancel_atom::value, id);
    forget_untaken(self, id);
  };
  return ask_node<std::string>(self, accept_time_limit, on_answer, generate_atom::value,
                               to_wire(request));
}

void give_credit(pointer self, const std::string& id, remote_link_state::open_request& it) {
  if (it.has_own_window || ++it.owed < wire_window / 2) return;
  tell_remote(self, self->state.session, credit_atom::value, id, std::exchange(it.owed, 0));
}

/// Passes one chunk on: into the list for its sink.
void pass(pointer self, token_chunk& chunk, std::map<caf::actor, chunk_list>& lists) {
  auto& state = self->state;
  const auto id = chunk.request_id;
  const auto found = state.requests.find(id);
  if (found == state.requests.end()) return;  // ended here
  auto& it = found->second;
  it.is_taken = true;
  const auto verdict = state.open.pass(chunk);
  if (verdict == request_ledger::verdict::gap) {
    log(severity::error, "node at {}: chunk {} of {} is out of order", place(self), chunk.seq, id);
    tell_remote(self, state.session, cancel_atom::value, id);
    for (auto& last : state.open.end(id, errc::internal, "chunks of the request were lost")) {
      note_finish(it, last);
      lists[it.sink].chunks.push_back(std::move(last));
    }
    return forget(self, id);
  }
  if (chunk.seq == 0)
    for (const auto& watcher : state.watchers)
      tell(self, watcher.actor, started_atom::value, watcher.number, id, std::int32_t{0});
  it.outputs += static_cast<std::int32_t>(chunk.ids.size());
  if (chunk.seed) it.seed = chunk.seed;
  note_finish(it, chunk);
  lists[it.sink].chunks.push_back(std::move(chunk));
  if (verdict == request_ledger::verdict::last)
    forget(self, id);
  else
    give_credit(self, id, it);
}

void deliver(pointer self, const std::string& bytes) {
  if (!self->state.session || !is_from(self, self->state.session)) return;
  auto list = from_wire<chunk_list>(bytes);
  if (!list) {
    log(severity::error, "node at {}: {}", place(self), list.error().message);
    return;
  }
  std::map<caf::actor, chunk_list> lists;
  for (auto& chunk : list->chunks) pass(self, chunk, lists);
  for (auto& [sink, part] : lists) tell_from_outside(sink, chunk_atom::value, std::move(part));
}

bytes_promise call(pointer self, const std::string& verb, std::string bytes) {
  const auto limit = time_limit_of(verb, bytes);
  return ask_node<std::string>(self, limit, {}, call_atom::value, verb, std::move(bytes));
}

caf::typed_response_promise<node_stats> stats_of(pointer self) {
  auto promise = self->make_response_promise<node_stats>();
  if (!self->state.session) {
    promise.deliver(to_caf(not_connected(self)));
    return promise;
  }
  self
    ->request(self->state.session, control_time_limit, call_atom::value, std::string(verb::stats),
              std::string())
    .then(
      [promise](const std::string& bytes) mutable {
        auto read = from_wire<node_stats>(bytes);
        if (read)
          promise.deliver(std::move(*read));
        else
          promise.deliver(to_caf(read.error()));
      },
      [promise](const caf::error& why) mutable { promise.deliver(to_caf(from_remote(why))); });
  return promise;
}

/// What came through this link; of what others ask of the node it knows nothing.
request_list list_of(const remote_link_state& state) {
  request_list out;
  for (const auto& [id, it] : state.requests) {
    auto& info = out.requests.emplace_back();
    info.id = id;
    info.output_tokens = it.outputs;
    info.seed = it.seed;
  }
  return out;
}

bytes_promise wait_open(pointer self) {
  auto promise = self->make_response_promise<std::string>();
  auto& state = self->state;
  if (state.session)
    promise.deliver(state.node);
  else
    state.waiting.push_back(promise);
  return promise;
}

void leave(pointer self) {
  end_all(self, errc::server_shutdown, "the link to the node was closed");
  answer_waiting(self, {errc::server_shutdown, "the link to the node was closed", {}});
  self->quit();
}

}  // namespace

caf::io::middleman_actor network_of(actor_host& host) {
  return host.has_tls() ? host.system().openssl_manager().actor_handle()
                        : host.system().middleman().actor_handle();
}

remote_front front_of(const remote_link_actor& link, const request_watcher_actor& router,
                      std::int32_t number) {
  tell_from_outside(link, watch_atom::value, number, router);
  return {caf::actor_cast<front_actor>(link),
          [link, router, number] { tell_from_outside(link, unwatch_atom::value, number, router); }};
}

remote_link_actor::behavior_type remote_link(pointer self, caf::io::middleman_actor network,
                                             remote_link_options options) {
  self->state.network = std::move(network);
  self->state.options = std::move(options);
  self->state.trying_since = clock::now();
  ignore_strangers(self);
  self->set_down_handler([self](const caf::down_msg& down) {
    if (self->state.session && down.source == self->state.session)
      on_lost(self);
    else
      on_sink_down(self, down.source);
  });
  connect(self);
  return {
    [self](generate_atom, const generate_request& request, const caf::actor& sink) {
      return start(self, request, sink);
    },
    [self](cancel_atom, const std::string& id) {
      return ask_node<bool>(self, control_time_limit, {}, cancel_atom::value, id);
    },
    [self](credit_atom, const std::string& id, std::int32_t chunks) {
      auto& state = self->state;
      if (state.session) tell_remote(self, state.session, credit_atom::value, id, chunks);
    },
    [self](list_atom) { return list_of(self->state); },
    [self](stats_atom) { return stats_of(self); },
    [self](call_atom, const std::string& verb, const std::string& bytes) {
      return call(self, verb, bytes);
    },
    [self](stop_atom) { leave(self); },
    [self](open_atom) { return wait_open(self); },
    [self](watch_atom, std::int32_t number, const request_watcher_actor& watcher) {
      watch(self, number, watcher);
    },
    [self](unwatch_atom, std::int32_t number, const request_watcher_actor& watcher) {
      unwatch(self, number, watcher);
    },
    [self](chunk_atom, const std::string& bytes) { deliver(self, bytes); },
    [self](link_tick_atom) { connect(self); },
    [self](tick_atom, std::uint64_t connection) { ask_health(self, connection); },
  };
}

}  // namespace deepinfer
