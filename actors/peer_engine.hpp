/// A node without a model of its own: a router over nodes elsewhere, for a gateway.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/node.hpp"
#include "config/effective.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

struct peer_options {
  std::vector<std::string> addresses;  ///< HOST:PORT, at least one
  std::string api_key;                 ///< shown to them; empty: none
};

/// Needs a host with network. Requests are refused with not_ready until one of the nodes answers;
/// links try again for ever. Verbs that concern a model are answered by the first node that can.
/// Errors: bad_config (an address that is none).
result<std::unique_ptr<node>> open_peers(const effective_config& config,
                                         const peer_options& options, node_parts parts);

}  // namespace deepinfer
