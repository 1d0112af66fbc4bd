/// The nodes around this one: those it sends requests to, and those it asks to send it some.
///
/// `peers` are nodes whose doors this one links to. With `join`, it tells a node elsewhere every
/// few seconds that requests may be sent to it; that node links back. A node counts while its link
/// stands and its health says ready: whoever wants to send requests is told by `on_peer`, and by
/// `on_peer_lost` when it no longer does. Links try again for ever; a node that joined and was lost
/// is forgotten when it has not said so again for `forget_after`.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/actor_host.hpp"
#include "actors/protocol.hpp"
#include "actors/wire_door.hpp"
#include "messages/cluster.hpp"
#include "messages/control.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

class metrics;

struct cluster_options {
  std::string api_key;  ///< of this node's links to others; empty: none
  std::chrono::milliseconds connect_timeout{3'000};
  std::chrono::milliseconds health_interval{1'000};
  std::chrono::milliseconds join_interval{2'000};
  std::chrono::milliseconds forget_after{30'000};
  /// Why this node's requests can't go to one with that model; null: they can.
  std::function<std::optional<std::string>(const model_info&)> misfit;
  metrics* counts = nullptr;  ///< null: nothing is counted; outlives the cluster
};

/// Called from an actor's thread: they must not block. A name is up at most once at a time.
struct cluster_hooks {
  std::function<void(const std::string& name, const node_door_actor& front)> on_peer;
  std::function<void(const std::string& name)> on_peer_lost;
};

class cluster {
public:
  /// Links to the nodes of `settings`, and answers about them at `door`. Errors: bad_config (an
  /// address that is none).
  static result<std::unique_ptr<cluster>> open(std::shared_ptr<actor_host> host,
                                               const actor_settings& settings, wire_door& door,
                                               cluster_options options, cluster_hooks hooks);
  ~cluster();  ///< stop()
  cluster(const cluster&) = delete;
  cluster& operator=(const cluster&) = delete;

  /// This node first, then peers, then nodes that joined, then those told. Errors:
  /// deadline_exceeded.
  result<node_list> nodes() const;

  /// Ends its links. Idempotent.
  void stop();

private:
  struct parts;
  explicit cluster(std::unique_ptr<parts> opened);

  std::unique_ptr<parts> parts_;
};

}  // namespace deepinfer
