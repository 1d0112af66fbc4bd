/// Node control: answers the operator's verbs that concern the whole node: model, text, trace,
/// metrics, dashboard, settings. Messages: protocol.hpp.
///
/// What the node knows is `node_desk`'s; long texts are read on a thread of their own. A trace, the
/// metrics and a change of settings need the ranks: every one of them is asked, with a deadline.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "actors/neighbour_desk.hpp"
#include "actors/node_desk.hpp"
#include "actors/protocol.hpp"
#include "runtime/base/metrics.hpp"
#include "runtime/base/span_ring.hpp"

namespace deepinfer {

struct control_links {
  control_links() = default;

  std::vector<supervisor_actor> ranks;
  node_door_actor door;  ///< asked for health and requests; null: a snapshot has none of them
  std::shared_ptr<const node_desk> desk;
  std::shared_ptr<live_config> config;
  std::shared_ptr<metrics> counts;
  std::shared_ptr<const neighbour_desk> neighbours;  ///< null: none are known
  std::shared_ptr<const span_ring> spans;            ///< of requests, for the timeline; null: none
  /// Tells doors and queues of new settings of the section `server` and of `log_requests`; must not
  /// block. Null: a change of these needs a restart.
  std::function<void(const engine_settings&)> on_doors_changed;
};

struct node_control_state {
  static inline const char* name = "node_control";

  node_control_state() = default;

  control_links links;
};

control_actor::behavior_type node_control(control_actor::stateful_pointer<node_control_state> self,
                                          control_links links);

}  // namespace deepinfer
