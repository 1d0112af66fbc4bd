/// HOST:PORT as people write it, and whether a host is this machine alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace deepinfer {

struct host_address {
  std::string host;
  std::uint16_t port = 0;
};

/// "10.0.0.2:4242", "node-b:4242", "[::1]:4242"; without a port, `default_port`. Errors:
/// bad_config, with what was found.
result<host_address> parse_host_address(std::string_view text, std::uint16_t default_port);

/// As `parse_host_address` reads it.
std::string format_host_address(const host_address& at);

/// Whether the name means an address now. Errors: bad_config, with why not.
result<void> check_host_known(const std::string& host);

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
