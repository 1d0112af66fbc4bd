/// Client hub: the one actor of a client. Starts its requests at a node's door, gets their chunks
/// in batches and tells each to its sink. When the door leaves, every request ends with
/// server_shutdown, and so does the hub.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "actors/client.hpp"
#include "actors/protocol.hpp"

namespace deepinfer {

using sink_ptr = std::shared_ptr<chunk_sink>;
using call_answer = std::function<void(result<std::string>)>;

using client_hub_actor = caf::typed_actor<
  // Starts a request, whose request_id is set.
  note<generate_atom, generate_request, sink_ptr>,
  // Chunks of its requests.
  note<chunk_atom, chunk_list>,
  // Chunks may be sent; a request is cancelled, with or without an answer.
  note<credit_atom, std::string, std::int32_t>, rpc<bool, cancel_atom, std::string>,
  // A verb with its argument, most milliseconds of waiting, and who is told the answer.
  note<call_atom, std::string, std::string, std::uint32_t, call_answer>,
  // Drops everything and leaves.
  note<stop_atom>>;

struct client_hub_state {
  static inline const char* name = "client_hub";

  client_hub_state() = default;

  struct open_request {
    sink_ptr sink;
    bool is_accepted = false;
    bool is_dropped = false;  ///< before it was accepted
  };

  node_door_actor door;
  std::unordered_map<std::string, open_request> requests;
};

client_hub_actor::behavior_type
client_hub(client_hub_actor::stateful_pointer<client_hub_state> self, node_door_actor door);

}  // namespace deepinfer

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::sink_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::call_answer)
