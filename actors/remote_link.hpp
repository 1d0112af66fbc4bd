/// Remote link: the door of a node elsewhere, as an actor of this process. Connects, says hello,
/// turns requests and verbs into bytes and chunks back into structs. Messages: protocol.hpp for who
/// uses it, wire_protocol.hpp for what goes over the network.
///
/// While there is no connection, requests and verbs are refused with not_ready. When one is lost,
/// or a question about the node's health is not answered in time, every open request gets its last
/// chunk: finish `error`, code rank_lost. A chunk that does not follow the one before it ends its
/// request with `internal`.
/// A request without a window is sent with one, so that a client that stops reading costs the node
/// no memory; its credit is given here, when chunks have arrived.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <caf/io/middleman_actor.hpp>

#include "actors/host_address.hpp"
#include "actors/protocol.hpp"
#include "actors/reconnect_pace.hpp"
#include "actors/remote_front.hpp"
#include "actors/request_ledger.hpp"
#include "actors/wire_protocol.hpp"
#include "messages/control.hpp"

namespace deepinfer {

using remote_link_actor = node_door_actor::extend<
  // Answered with the node's name once connected. Errors: unauthenticated, invalid_argument
  // (another version), not_ready (nobody answered in `wait_timeout`).
  rpc<std::string, open_atom>,
  // From now on a watcher is told, under this number, how requests fare and whether the node takes
  // any; where it takes none also why, whenever that changes.
  note<watch_atom, std::int32_t, request_watcher_actor>,
  // A watcher is told under this number that it is gone, and nothing after that.
  note<unwatch_atom, std::int32_t, request_watcher_actor>,
  // Chunks from the node. INTERNAL.
  note<chunk_atom, std::string>,
  // Tries to connect; asks for the node's health, over the connection of that number. INTERNAL.
  note<link_tick_atom>, note<tick_atom, std::uint64_t>>;

struct remote_link_options {
  host_address to;
  std::string api_key;
  std::string name;                                  ///< said with hello, for the node's log
  std::chrono::milliseconds connect_timeout{3'000};  ///< of one attempt
  std::chrono::milliseconds wait_timeout{3'000};     ///< of who waits for the first connection
  bool reconnects = true;
  std::chrono::milliseconds health_interval{1'000};  ///< while somebody watches
  std::chrono::milliseconds health_timeout{5'000};   ///< without an answer the connection is lost
  /// Why requests can't go to a node with this model; null: any will do. Asked again and again,
  /// from an actor's thread.
  std::function<std::optional<std::string>(const model_info&)> misfit;
};

struct remote_link_state {
  static inline const char* name = "remote_link";

  remote_link_state() = default;

  struct open_request {
    caf::actor sink;
    bool has_own_window = false;
    bool is_taken = false;                           ///< the node has answered, or sent chunks
    std::int32_t owed = 0;                           ///< credit not given yet
    std::int32_t outputs = 0;                        ///< tokens so far
    std::map<std::int32_t, finish_reason> finished;  ///< its answers that have
    errc code = errc::ok;                            ///< of the last that failed
    std::optional<std::uint64_t> seed;               ///< given, or as the node has told it
  };
  struct watcher {
    std::int32_t number = 0;
    request_watcher_actor actor;
    bool is_ready = false;  ///< what it knows
    std::string why;        ///< it is not
  };

  caf::io::middleman_actor network;
  remote_link_options options;
  caf::actor session;  ///< null while there is no connection
  std::string node;
  reconnect_pace pace;
  std::chrono::steady_clock::time_point trying_since;
  std::string last_failure;
  bool knows_model = false;           ///< since the connection was opened: `model` is right
  std::optional<model_info> model;    ///< nothing: the node does not say
  std::optional<std::string> misfit;  ///< of the model, when it was judged last
  std::vector<caf::typed_response_promise<std::string>> waiting;  ///< for the connection
  request_ledger open;
  std::unordered_map<std::string, open_request> requests;
  std::map<caf::actor_addr, std::int32_t> sinks;  ///< requests of each
  /// Answers that are due from the node; with the connection they are lost.
  std::map<std::uint64_t, caf::response_promise> due;
  std::uint64_t tickets = 0;
  std::vector<watcher> watchers;
  std::uint64_t connections = 0;
  bool is_polling = false;  ///< over the newest one
};

class actor_host;

/// Whom a link asks for connections: in the clear, or over TLS.
caf::io::middleman_actor network_of(actor_host& host);

/// The link as a front of a router, which is told of it under this number until it lets it go.
remote_front front_of(const remote_link_actor& link, const request_watcher_actor& router,
                      std::int32_t number);

remote_link_actor::behavior_type
remote_link(remote_link_actor::stateful_pointer<remote_link_state> self,
            caf::io::middleman_actor network, remote_link_options options);

}  // namespace deepinfer
