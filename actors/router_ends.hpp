/// How a router ends requests that no replica ends: told to its client and to the log once.
#pragma once

#include <string>

#include "actors/router_verbs.hpp"

namespace deepinfer {

/// Forgets a request; what is left to be said has been said, or is said by the caller.
router_state::open_request extract(router_pointer self, const std::string& id);

/// The line of a request that no replica of this node has logged.
void log_end(router_pointer self, const std::string& id, const router_state::open_request& it,
             const request_end& how);

/// As the answer where it has had none, else by chunks.
void end_with(router_pointer self, const std::string& id, const error& why);

/// A cancelled request ends as one that was running: it is taken, and over.
void end_cancelled(router_pointer self, const std::string& id);

/// It waited, and its client has gone.
void end_gone(router_pointer self, const std::string& id);

}  // namespace deepinfer
