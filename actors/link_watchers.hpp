/// Whom a link tells how its node is, and how it comes to know: it asks the node for its health
/// while somebody watches, and once a connection for its model, which is judged each time.
#pragma once

#include <cstdint>
#include <string>

#include "actors/remote_link.hpp"

namespace deepinfer {

using remote_link_pointer = remote_link_actor::stateful_pointer<remote_link_state>;

/// HOST:PORT of the node.
std::string place(remote_link_pointer self);

/// Every watcher is told what it does not know yet.
void tell_ready(remote_link_pointer self, bool is_ready, const std::string& why);

/// The node's own word on whether it takes requests, over the connection of that number; again and
/// again, until nobody watches or the connection is lost. A node that does not know the verb takes
/// them.
void ask_health(remote_link_pointer self, std::uint64_t connection);

/// The link's part: over the connection of that number the node gives no answer, not even an error.
void on_silent(remote_link_pointer self, std::uint64_t connection);

/// One watcher more, which is told what the others know; one less, which is told that it is gone.
void watch(remote_link_pointer self, std::int32_t number, request_watcher_actor watcher);
void unwatch(remote_link_pointer self, std::int32_t number, const request_watcher_actor& watcher);

}  // namespace deepinfer
