/// Router: the door of a node over its replicas, and over those of nodes elsewhere. Sends each
/// request to one of them (`request_router`), keeps those that wait, and answers the operator's
/// verbs or passes them to the control actor. Messages: protocol.hpp.
///
/// The answer of a generate is its replica's, or that it was refused; a request that waits has no
/// answer yet. Chunks go from the replica to the client's sink, past the router. What a lost
/// replica gives back waits again; only what it had started is lost with it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/protocol.hpp"
#include "runtime/base/metrics.hpp"
#include "runtime/core/request_router.hpp"

namespace deepinfer {

/// A replica, and who answers for it.
struct replica_link {
  replica_link() = default;

  std::int32_t replica = 0;
  front_actor front;
  supervisor_actor supervisor;  ///< null: the replica is a node elsewhere
  std::int32_t slots = 1;       ///< sequences that run there at a time, or that it is sent
  std::int32_t ahead = 0;       ///< sequences that it is sent beyond these
  bool is_peer = false;         ///< it may send requests here, too: what it is sent must stay there
  std::string name;             ///< in metrics and in errors
  /// Called once it was taken out and nothing that it was sent is open: what is left is that its
  /// front says `gone` as its last word. Null: it says nothing more.
  std::function<void()> on_left;
};

using router_actor = node_door_actor::extend_with<request_watcher_actor>::extend<
  // A replica comes. It is used once it says that it is ready, which it may have said before.
  note<join_atom, replica_link>,
  // A replica gets no more requests; those that it has go on.
  note<leave_atom, std::int32_t>,
  // Who answers the verbs that the router does not know.
  note<join_atom, control_actor>,
  // Other rules for requests that come from now on, and whether their ends are logged.
  note<engine_settings>,
  // Ends what waits with server_shutdown and takes no more: its replicas are about to stop.
  note<close_atom>,
  // Looks at the clock; a drain is at its deadline. INTERNAL.
  note<tick_atom>, note<wake_atom, std::uint64_t>>;

/// How a router queues and chooses, by the settings.
router_config router_config_of(const engine_settings& settings);

struct router_links {
  router_links() = default;

  router_config config;
  std::string node_name;
  metrics* counts = nullptr;  ///< null: nothing is counted
  std::int32_t max_n = 16;    ///< more answers than these are not counted: they will be refused
  std::int32_t max_outputs = 1 << 20;  ///< of an answer
  control_actor control;               ///< null: only the router's own verbs are known
  request_logging log_requests = request_logging::off;
};

struct router_state {
  static inline const char* name = "router";

  struct open_request {
    std::shared_ptr<const generate_request> asked;  ///< null once it has started
    caf::actor sink;
    std::optional<caf::typed_response_promise<std::string>> answer;  ///< none once it was given
    std::string tenant;
    std::string client_request_id;
    std::string trace_id;
    std::int32_t answers = 1;
    std::int32_t prompt_tokens = 0;     ///< about
    std::optional<std::uint64_t> seed;  ///< where it was given one
    std::int64_t arrived_us = 0;
    std::int32_t replica = -1;  ///< -1: it waits
    std::uint64_t attempt = 0;  ///< of sending it: answers of older ones are late
    bool has_started = false;
    bool is_cancelled = false;
  };

  struct replica_state {
    replica_link link;
    bool is_ready = false;
    std::string reason;  ///< why it is not
    enum class stay : std::uint8_t { here, leaving, left } stays = stay::here;
  };

  router_state() = default;

  router_links links;
  std::optional<request_router> core;
  std::map<std::int32_t, replica_state> replicas;
  std::map<std::int32_t, std::pair<bool, std::string>> announced;  ///< ready or not, and not joined
  std::unordered_map<std::string, open_request> requests;
  std::map<caf::actor_addr, std::int32_t> sinks;  ///< monitored, with their requests
  std::map<std::uint64_t, caf::typed_response_promise<std::string>> drains;
  std::uint64_t drains_seen = 0;
  std::uint64_t attempts = 0;
  std::uint64_t named = 0;
  std::int64_t tick_at_us = -1;
  bool is_draining = false;
  bool is_closing = false;
};

router_actor::behavior_type router(router_actor::stateful_pointer<router_state> self,
                                   router_links links);

}  // namespace deepinfer

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::replica_link)
