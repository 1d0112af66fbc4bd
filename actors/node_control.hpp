/// Node control: answers the operator's verbs that concern the whole node: model, text, trace,
/// metrics, dashboard, settings. Messages: protocol.hpp.
///
/// What the node knows is `node_desk`'s; long texts are read on threads of their own, as many as
/// `text_lanes` says. A trace, the
/// metrics and a change of settings need the ranks: every one of them is asked, with a deadline.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/neighbour_desk.hpp"
#include "actors/node_desk.hpp"
#include "actors/protocol.hpp"
#include "runtime/base/metrics.hpp"
#include "runtime/base/span_ring.hpp"
#include "runtime/core/text_lanes.hpp"

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

  struct long_text {
    std::string verb, bytes;
    caf::typed_response_promise<std::string> promise;
  };

  control_links links;
  text_lanes lanes;
  std::map<std::uint64_t, long_text> texts;  ///< that wait or are read
  std::uint64_t texts_seen = 0;
};

control_actor::behavior_type node_control(control_actor::stateful_pointer<node_control_state> self,
                                          control_links links);

}  // namespace deepinfer
