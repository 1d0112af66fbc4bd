/// Wire session: a node's side of one link. Starts the link's requests at the node's engine, puts
/// together what comes for it and sends it on. When the link has gone the session leaves, and the
/// engine cancels what it had started. Messages: wire_protocol.hpp.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/protocol.hpp"
#include "actors/request_ledger.hpp"
#include "actors/verb_actor.hpp"
#include "actors/wire_protocol.hpp"

namespace deepinfer {

/// What a node's sessions know of it. Written by the process, read by their actors.
class door_desk {
public:
  struct view {
    std::optional<node_door_actor> engine;
    std::optional<verb_actor> cluster;
    node_health loading;  ///< while there is no engine
  };

  explicit door_desk(std::string node_name);

  view look() const;
  void note_loading(double progress, std::string stage);
  void attach(node_door_actor engine);
  void attach_cluster(verb_actor cluster);

private:
  mutable std::mutex mutex_;
  view now_;
};

struct wire_session_state {
  static inline const char* name = "wire_session";

  wire_session_state() = default;

  caf::actor link;
  std::shared_ptr<const door_desk> desk;
  std::string tenant;  ///< of the link's key; empty: requests say it
  request_ledger open;
  /// Of requests that nothing has been said about: they may wait for a replica.
  std::map<std::string, caf::typed_response_promise<std::string>> starting;
  chunk_list outbox;
  bool is_flushing = false;
};

/// Monitors `door` and `link`; leaves with either.
caf::behavior wire_session(caf::stateful_actor<wire_session_state>* self,
                           std::shared_ptr<const door_desk> desk, const caf::actor& door,
                           caf::actor link, std::string tenant);

}  // namespace deepinfer
