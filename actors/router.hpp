/// Router: the door of a node. Sends each request to a replica, and answers the operator's verbs.
/// Messages: protocol.hpp.
#pragma once

#include "actors/protocol.hpp"

namespace deepinfer {

struct router_links {
  gateway_actor gateway;
  supervisor_actor supervisor;
};

struct router_state {
  static inline const char* name = "router";

  router_state() = default;

  router_links links;
};

node_door_actor::behavior_type router(node_door_actor::stateful_pointer<router_state> self,
                                      router_links links);

}  // namespace deepinfer
