/// What a router tells of itself and of its replicas, and the operator's verbs that it answers.
#pragma once

#include "actors/router.hpp"

namespace deepinfer {

using router_pointer = router_actor::stateful_pointer<router_state>;

/// Microseconds on the clock of the router's actor system.

/// Sums over the replicas of this node; over those elsewhere where it has none of its own.
caf::typed_response_promise<node_stats> stats_of(router_pointer self);

/// Open requests, the oldest first: those that wait here, those of the replicas of this node, and
/// of those elsewhere what the router knows.
caf::typed_response_promise<request_list> list_of(router_pointer self);

/// Answers a verb, or has it answered.
caf::result<std::string> answer_verb(router_pointer self, const std::string& verb,
                                     const std::string& bytes);

/// Answers drains where no request is open, or the one whose deadline has come.
void end_drains(router_pointer self);
void end_drain(router_pointer self, std::uint64_t drain);

}  // namespace deepinfer
