#include "actors/client_hub.hpp"

#include "actors/client_state.hpp"

namespace deepinfer {
namespace {

using pointer = client_hub_actor::stateful_pointer<client_hub_state>;

constexpr std::chrono::seconds control_timeout{10};

void accept(client_hub_state::open_request& it, const std::string& id) {
  if (std::exchange(it.is_accepted, true)) return;
  it.sink->on_accepted(id);
}

void refuse(pointer self, const std::string& id, const error& why) {
  const auto found = self->state.requests.find(id);
  if (found == self->state.requests.end()) return;
  const auto sink = std::move(found->second.sink);
  self->state.requests.erase(found);
  sink->on_error(why);
}

void start(pointer self, generate_request& request, sink_ptr& sink) {
  auto id = request.request_id;
  auto& state = self->state;
  if (state.requests.contains(id)) {
    sink->on_error({errc::invalid_argument, "request_id: " + id + " is in use", "request_id"});
    return;
  }
  state.requests.emplace(id, client_hub_state::open_request{std::move(sink)});
  // It may wait in the node's queue. The node says how long and answers, or leaves, which is told;
  // a timer for each request would be another, and would outlive it.
  self
    ->request(state.door, caf::infinite, generate_atom::value, std::move(request),
              caf::actor_cast<caf::actor>(self))
    .then(
      [self, id](const std::string&) {
        const auto found = self->state.requests.find(id);
        if (found == self->state.requests.end()) return;
        accept(found->second, id);
      },
      [self, id](caf::error& failure) { refuse(self, id, from_caf(failure)); });
}

/// Chunks may overtake the answer that the request was accepted: it was.
void deliver(pointer self, chunk_list& list) {
  auto& requests = self->state.requests;
  for (auto& chunk : list.chunks) {
    const auto found = requests.find(chunk.request_id);
    if (found == requests.end()) continue;
    accept(found->second, chunk.request_id);
    const auto sink = found->second.sink;
    if (chunk.is_last) requests.erase(found);
    sink->on_chunk(std::move(chunk));
  }
}

void fail_all(pointer self, const error& why) {
  auto requests = std::exchange(self->state.requests, {});
  for (auto& [id, it] : requests) it.sink->on_error(why);
}

}  // namespace

client_hub_actor::behavior_type client_hub(pointer self, node_door_actor door) {
  self->state.door = std::move(door);
  self->monitor(self->state.door);
  self->set_down_handler([self](caf::down_msg&) {
    fail_all(self, {errc::server_shutdown, "the node has stopped", {}});
    self->quit();
  });
  return {
    [self](generate_atom, generate_request& request, sink_ptr& sink) {
      start(self, request, sink);
    },
    [self](chunk_atom, chunk_list& list) { deliver(self, list); },
    [self](credit_atom, const std::string& id, std::int32_t chunks) {
      tell(self, self->state.door, credit_atom::value, id, chunks);
    },
    [self](cancel_atom, const std::string& id) {
      auto promise = self->make_response_promise<bool>();
      ask(self, self->state.door, control_timeout, cancel_atom::value, id)
        .then([promise](bool was_running) mutable { promise.deliver(was_running); },
              [promise](caf::error& failure) mutable { promise.deliver(std::move(failure)); });
      return promise;
    },
    [self](call_atom, std::string& verb, std::string& bytes, std::uint32_t timeout_ms,
           const call_answer& answer) {
      ask(self, self->state.door, std::chrono::milliseconds(timeout_ms), call_atom::value,
          std::move(verb), std::move(bytes))
        .then([answer](std::string& reply) { answer(std::move(reply)); },
              [answer](caf::error& failure) { answer(tl::unexpected<error>(from_caf(failure))); });
    },
    [self](stop_atom) {
      fail_all(self, {errc::cancelled, "the client has gone", {}});
      self->quit();
    },
  };
}

}  // namespace deepinfer
