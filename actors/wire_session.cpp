#include "actors/wire_session.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "actors/client_state.hpp"
#include "messages/wire.hpp"

namespace deepinfer {

door_desk::door_desk(std::string node_name) {
  now_.loading.state = health_state::loading;
  now_.loading.node = std::move(node_name);
}

door_desk::view door_desk::look() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

void door_desk::note_loading(double progress, std::string stage) {
  const std::lock_guard lock(mutex_);
  now_.loading.progress = progress;
  now_.loading.stage = std::move(stage);
}

void door_desk::attach(node_door_actor engine) {
  const std::lock_guard lock(mutex_);
  now_.engine = std::move(engine);
}

void door_desk::attach_cluster(verb_actor cluster) {
  const std::lock_guard lock(mutex_);
  now_.cluster = std::move(cluster);
}

namespace {

using pointer = caf::stateful_actor<wire_session_state>*;
using bytes_promise = caf::typed_response_promise<std::string>;

error not_ready(const node_health& loading) {
  return {errc::not_ready,
          fmt::format("the node is loading its model ({:.0f} %{}{})", loading.progress * 100,
                      loading.stage.empty() ? "" : ": ", loading.stage),
          {}};
}

error stranger() {
  return {errc::unauthenticated, "this session is another link's", {}};
}

void flush(pointer self) {
  auto& state = self->state;
  state.is_flushing = false;
  if (state.outbox.chunks.empty()) return;
  self->send(state.link, chunk_atom::value, to_wire(state.outbox));
  state.outbox.chunks.clear();
}

/// Behind what has come already: chunks of several replicas and steps leave as one.
void schedule_flush(pointer self) {
  if (std::exchange(self->state.is_flushing, true)) return;
  self->send(self, flush_atom::value);
}

/// What has not been taken is refused, so that the other end may place it elsewhere.
void end_all(pointer self, errc code, const std::string& message) {
  auto& state = self->state;
  for (auto& [id, promise] : std::exchange(state.starting, {})) {
    state.open.forget(id);
    promise.deliver(to_remote({code, message, {}}));
  }
  for (const auto& id : state.open.ids())
    for (auto& chunk : state.open.end(id, code, message))
      state.outbox.chunks.push_back(std::move(chunk));
  flush(self);
}

void on_taken(pointer self, const std::string& id) {
  auto node = self->state.starting.extract(id);
  if (!node.empty()) node.mapped().deliver(id);
}

bytes_promise start(pointer self, const std::string& bytes) {
  const bool is_its_link = is_from(self, self->state.link);  // a promise takes the sender
  auto promise = self->make_response_promise<std::string>();
  auto& state = self->state;
  const auto refuse = [&promise](const error& why) {
    promise.deliver(to_remote(why));
    return promise;
  };
  if (!is_its_link) return refuse(stranger());
  const auto now = state.desk->look();
  if (!now.engine) return refuse(not_ready(now.loading));
  auto read = from_wire<generate_request>(bytes);
  if (!read) return refuse(read.error());
  auto& request = *read;
  const auto id = request.request_id;
  if (id.empty())
    return refuse({errc::invalid_argument, "found none, expected an id", "request_id"});
  if (!state.tenant.empty()) request.tenant = state.tenant;
  if (request.window <= 0) request.window = wire_window;
  request.window = std::min(request.window, max_wire_window);
  if (!state.open.open(id, request.sampling.n))
    return refuse(
      {errc::invalid_argument, fmt::format("request_id: {} is in use", id), "request_id"});
  state.starting.emplace(id, promise);
  self
    ->request(*now.engine, accept_time_limit, generate_atom::value, std::move(request),
              caf::actor_cast<caf::actor>(self))
    .then([self, id](const std::string&) { on_taken(self, id); },
          [self, id](const caf::error& why) {
            auto node = self->state.starting.extract(id);
            if (node.empty()) return;
            self->state.open.forget(id);
            node.mapped().deliver(to_remote(from_caf(why)));
          });
  return promise;
}

void collect(pointer self, chunk_list& list) {
  auto& state = self->state;
  for (auto& chunk : list.chunks) {
    on_taken(self, chunk.request_id);
    if (state.open.pass(chunk) != request_ledger::verdict::unknown)
      state.outbox.chunks.push_back(std::move(chunk));
  }
  schedule_flush(self);
}

bytes_promise call(pointer self, const std::string& verb, std::string& bytes) {
  const bool is_its_link = is_from(self, self->state.link);
  auto promise = self->make_response_promise<std::string>();
  auto& state = self->state;
  const auto now = state.desk->look();
  const auto on_answer = [promise](std::string& answer) mutable {
    promise.deliver(std::move(answer));
  };
  const auto on_error = [promise](const caf::error& why) mutable {
    promise.deliver(to_remote(from_caf(why)));
  };
  const auto limit = time_limit_of(verb, bytes);
  if (!is_its_link)
    promise.deliver(to_remote(stranger()));
  else if (verb == verb::join || verb == verb::nodes) {
    if (now.cluster)
      self->request(*now.cluster, limit, call_atom::value, verb, std::move(bytes))
        .then(on_answer, on_error);
    else
      promise.deliver(to_remote({errc::not_found, "the node knows no others", "verb"}));
  } else if (now.engine)
    self->request(*now.engine, limit, call_atom::value, verb, std::move(bytes))
      .then(on_answer, on_error);
  else if (verb == verb::health)
    promise.deliver(to_wire(now.loading));
  else
    promise.deliver(to_remote(not_ready(now.loading)));
  return promise;
}

caf::typed_response_promise<bool> cancel(pointer self, const std::string& id) {
  const bool is_its_link = is_from(self, self->state.link);
  auto promise = self->make_response_promise<bool>();
  const auto engine = self->state.desk->look().engine;
  if (!is_its_link)
    promise.deliver(to_remote(stranger()));
  else if (!engine)
    promise.deliver(false);
  else
    self->request(*engine, control_time_limit, cancel_atom::value, id)
      .then(
        [promise](bool was_running) mutable { promise.deliver(was_running); },
        [promise](const caf::error& why) mutable { promise.deliver(to_remote(from_caf(why))); });
  return promise;
}

void credit(pointer self, const std::string& id, std::int32_t chunks) {
  const auto engine = self->state.desk->look().engine;
  if (!is_from(self, self->state.link) || !engine || !self->state.open.contains(id)) return;
  if (chunks > 0) self->send(*engine, credit_atom::value, id, std::min(chunks, max_wire_window));
}

}  // namespace

caf::behavior wire_session(pointer self, std::shared_ptr<const door_desk> desk,
                           const caf::actor& door, caf::actor link, std::string tenant) {
  auto& state = self->state;
  state.desk = std::move(desk);
  state.link = std::move(link);
  state.tenant = std::move(tenant);
  ignore_strangers(self);
  self->monitor(state.link);
  self->monitor(door);
  self->set_down_handler([self](const caf::down_msg& down) {
    if (down.source != self->state.link)
      end_all(self, errc::server_shutdown, "the node has closed its door");
    self->quit();
  });
  return {
    [self](generate_atom, const std::string& bytes) { return start(self, bytes); },
    [self](cancel_atom, const std::string& id) { return cancel(self, id); },
    [self](credit_atom, const std::string& id, std::int32_t chunks) { credit(self, id, chunks); },
    [self](call_atom, const std::string& verb, std::string& bytes) {
      return call(self, verb, bytes);
    },
    [self](chunk_atom, chunk_list& list) { collect(self, list); },
    [self](flush_atom) { flush(self); },
    [self](stop_atom) {
      if (!is_local_sender(self)) return;
      end_all(self, errc::server_shutdown, "the node has closed its door");
      self->quit();
    },
  };
}

}  // namespace deepinfer
