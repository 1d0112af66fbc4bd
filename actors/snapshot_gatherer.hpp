/// Looks once at a gateway and at all of its nodes, in parallel, and leaves. A node that gives no
/// answer in time is told of as such. Messages: protocol.hpp.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "actors/gateway_snapshot.hpp"
#include "actors/remote_link.hpp"
#include "actors/verb_actor.hpp"

namespace deepinfer {

struct snapshot_sources {
  snapshot_sources() = default;

  node_door_actor door;                  ///< the gateway's router
  std::vector<remote_link_actor> nodes;  ///< in the order of `known`
  std::vector<gateway_part> known;       ///< what is known of the nodes without asking
  std::chrono::steady_clock::time_point running_since;
};

/// Answers one call: the verb `snapshot`.
verb_actor::behavior_type snapshot_gatherer(verb_actor::pointer self,
                                            const snapshot_sources& sources);

}  // namespace deepinfer
