/// The flags by which a command reaches a node elsewhere, and the client they make.
#pragma once

#include <string>
#include <vector>

#include "actors/client.hpp"
#include "actors/node/cli.hpp"

namespace deepinfer {

/// --connect of a command that would load a model otherwise, and what that node is shown: settings
/// of those names are a node's own and mean what others must show to it.
std::vector<flag> elsewhere_flags();

/// Beside --connect a flag of an engine would do nothing. Errors: bad_config naming those given.
result<void> check_elsewhere(const parsed_flags& flags);

/// --connect, --api-key and the files of TLS, for a command without settings. All but --connect
/// have the names, and the variables, of the settings of `serve`.
std::vector<flag> remote_flags();

/// Where --connect leads, or the node of this machine. Errors: bad_config.
result<client_options> read_remote(const cli_context& context, const parsed_flags& flags);

/// Connects there.
result<client> connect_remote(const cli_context& context, const parsed_flags& flags);

}  // namespace deepinfer
