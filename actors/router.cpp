#include "actors/router.hpp"

#include <fmt/format.h>

#include "actors/client_state.hpp"
#include "messages/wire.hpp"

namespace deepinfer {

using pointer = node_door_actor::stateful_pointer<router_state>;

node_door_actor::behavior_type router(pointer self, router_links links) {
  self->state.links = std::move(links);
  const auto stats_timeout = std::chrono::seconds(5);
  return {
    [self](generate_atom, const generate_request& request, const caf::actor& sink) {
      return self->delegate(self->state.links.gateway, generate_atom::value, request, sink);
    },
    [self](cancel_atom, const std::string& id) {
      return self->delegate(self->state.links.gateway, cancel_atom::value, id);
    },
    [self](credit_atom, const std::string& id, std::int32_t chunks) {
      tell(self, self->state.links.gateway, credit_atom::value, id, chunks);
    },
    [self](list_atom) { return self->delegate(self->state.links.gateway, list_atom::value); },
    [self](stats_atom) { return self->delegate(self->state.links.supervisor, stats_atom::value); },
    [self](stop_atom) { self->quit(); },
    [self, stats_timeout](call_atom, const std::string& verb, const std::string&) {
      auto promise = self->make_response_promise<std::string>();
      if (verb != verb::stats) {
        promise.deliver(to_caf({errc::not_found, "verb: found '" + verb + "'", "verb"}));
        return promise;
      }
      ask(self, self->state.links.supervisor, stats_timeout, stats_atom::value)
        .then([promise](const node_stats& it) mutable { promise.deliver(to_wire(it)); },
              [promise](caf::error& why) mutable { promise.deliver(std::move(why)); });
      return promise;
    },
  };
}

}  // namespace deepinfer
