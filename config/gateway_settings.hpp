/// Which settings mean something to a gateway: it has a door, a queue and links to nodes, and
/// neither an engine nor a port for other nodes.
#pragma once

#include <string>
#include <vector>

#include "config/effective.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

bool is_of_gateway(const std::string& key);

/// A flag without an effect is an error bad_config that names it. Settings of a file or of the
/// environment may be there for the nodes: the answer is a warning for each of those.
result<std::vector<std::string>> check_gateway_settings(const effective_config& config);

}  // namespace deepinfer
