/// HOST:PORT as people write it, and whether a host is this machine alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace deepinfer {

struct host_address {
  std::string host;
  std::uint16_t port = 0;
};

/// "10.0.0.2:4242", "node-b:4242", "[::1]:4242"; without a port, `default_port`. Errors:
/// bad_config, with what was found.
result<host_address> parse_host_address(std::string_view text, std::uint16_t default_port);

/// Addresses of nodes as settings list them, and what is to be said of them. One without a port
/// gets that of an actor port by default, with a warning; one that is there twice counts once.
/// Errors: bad_config within `place`.
struct address_list {
  std::vector<host_address> addresses;
  std::vector<std::string> warnings;
};
result<address_list> read_addresses(const std::vector<std::string>& texts, std::string_view place);

/// As `parse_host_address` reads it.
std::string format_host_address(const host_address& at);

/// Whether the name means an address now. Errors: bad_config, with why not.
result<void> check_host_known(const std::string& host);

/// Whether this process can listen there, by trying. Errors: port_in_use; bad_config, where the
/// address is none of this machine, its name is not known or the user may not have the port. Their
/// `param` is host or port.
result<void> check_can_listen(const host_address& at);

/// What a node calls itself where nobody has named it: the machine's name and a port, or the
/// process's number where the port is not known yet.
std::string default_node_name(std::uint16_t port);

/// Whether only this machine can reach what listens there: localhost, 127.x.x.x, ::1.
bool is_loopback(std::string_view host);

/// What this machine calls itself; "localhost" where it has no name.
std::string machine_name();

/// Whether it stands for every address of the machine: empty, 0.0.0.0, ::.
bool is_any_host(std::string_view host);

}  // namespace deepinfer
