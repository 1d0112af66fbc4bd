/// What nodes tell each other: who greets, who may be sent requests, who is known. Plain structs,
/// as Protobuf bytes on the wire (wire.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "messages/describe.hpp"

namespace deepinfer {

/// Verbs of a node's door beside those of its engine (control.hpp).
namespace verb {
inline constexpr std::string_view join = "join";    ///< join_call  text_reply
inline constexpr std::string_view nodes = "nodes";  ///< -          node_list
}  // namespace verb

/// A node's answer to the hello of a link.
struct hello_reply {
  std::uint32_t version = 0;
  std::string node;
  std::string tenant;  ///< whose requests the link's are, by its key; empty: as they say

  static constexpr auto describe() {
    using s = hello_reply;
    return fields(field{"version", &s::version}, field{"node", &s::node},
                  field{"tenant", &s::tenant});
  }
};

/// "Requests may be sent to me, at this address."
struct join_call {
  std::string name;
  std::string host;
  std::uint32_t port = 0;

  static constexpr auto describe() {
    using s = join_call;
    return fields(field{"name", &s::name}, field{"host", &s::host}, field{"port", &s::port});
  }
};

/// A node that another one knows, for people.
struct node_entry {
  std::string name;
  std::string host;
  std::uint32_t port = 0;
  std::string state;   ///< up, loading, down
  std::string origin;  ///< self, peer, joined (it asked for requests), told (it was asked to send)
  std::string reason;  ///< why it takes no requests

  static constexpr auto describe() {
    using s = node_entry;
    return fields(field{"name", &s::name}, field{"host", &s::host}, field{"port", &s::port},
                  field{"state", &s::state}, field{"origin", &s::origin},
                  field{"reason", &s::reason});
  }
};

struct node_list {
  std::vector<node_entry> nodes;

  static constexpr auto describe() { return fields(field{"nodes", &node_list::nodes}); }
};

}  // namespace deepinfer
