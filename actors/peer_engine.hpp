/// A node without a model of its own: a router over nodes elsewhere, for a gateway.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/live_config.hpp"
#include "actors/node.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

struct peer_options {
  std::vector<std::string> addresses;  ///< HOST:PORT, at least one; the same twice is one
  std::string api_key;                 ///< shown to them; empty: none
  /// Told how many of the nodes take requests whenever that changes, once the router knows it. From
  /// an actor's thread: it must not block.
  std::function<void(std::size_t up, std::size_t all)> on_nodes;
};

/// Needs a host with network. Requests are refused with not_ready until one of the nodes answers;
/// links try again for ever. Verbs that concern a model are answered by the first node that can;
/// of the settings in `config` those of doors and queues may change. Errors: bad_config (an address
/// that is none).
result<std::unique_ptr<node>> open_peers(std::shared_ptr<live_config> config,
                                         const peer_options& options, node_parts parts);

}  // namespace deepinfer
