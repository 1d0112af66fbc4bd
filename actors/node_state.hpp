/// What a node holds: private to actors/, since it names CAF. Code of the process around a node
/// reaches its router, adds nodes elsewhere and the control actor here.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/actor_host.hpp"
#include "actors/neighbour_desk.hpp"
#include "actors/node.hpp"
#include "actors/rank_supervisor.hpp"
#include "actors/remote_front.hpp"
#include "actors/router.hpp"
#include "runtime/base/metrics.hpp"
#include "runtime/base/span_ring.hpp"
#include "runtime/device/device.hpp"

namespace deepinfer {

/// Stops in this order: what waits in the router, gateways, ranks, control, router, devices.
struct node::machinery {
  /// Destroyed in reverse order: the doors of completions behind the device that calls them.
  struct replica {
    device_doors doors;
    rank_machines machines;
    gateway_actor gateway;
    supervisor_actor supervisor;

    explicit replica(rank_machines brought) : machines(std::move(brought)) {}
  };

  explicit machinery(node_parts given);
  ~machinery() { stop(); }
  machinery(const machinery&) = delete;
  machinery& operator=(const machinery&) = delete;

  void start_router(const engine_settings& settings, const node_facts& facts);
  void add_replica(const engine_settings& settings, rank_machines brought);
  void stop();

  /// Makes a front for a node elsewhere, which is told whom to tell how its requests fare and what
  /// its number is. It gets requests once it has said that it is ready.
  using front_maker = std::function<remote_front(const request_watcher_actor&, std::int32_t)>;
  struct remote_node {
    std::string name;
    std::int32_t capacity = 1;  ///< sequences that it is sent at a time
    bool is_peer = false;       ///< it may send requests here, too
  };
  /// Sends it requests, too. Gives its number. From one thread at a time.
  std::int32_t add_remote(const remote_node& there, const front_maker& make);
  /// It gets no more requests; those that it has go on. Its front is stopped by its owner.
  void remove_remote(std::int32_t number);

  /// Verbs that the router does not know go there. It is stopped with the node.
  void set_control(control_actor control);

  caf::actor_system& system() { return parts.host->system(); }

  static constexpr std::size_t spans_kept = 1024;

  node_parts parts;
  std::shared_ptr<neighbour_desk> neighbours = std::make_shared<neighbour_desk>();
  std::shared_ptr<span_ring> spans = std::make_shared<span_ring>(spans_kept);
  bool is_served;  ///< in a host that was there before: its requests are logged
  std::vector<std::unique_ptr<replica>> replicas;
  router_actor door;
  control_actor control;
  std::int32_t numbers = 0;  ///< given to replicas so far
  bool has_stopped = false;
};

}  // namespace deepinfer
