/// What the dashboard of a gateway shows: its nodes, each with what it says of itself, and their
/// sums, as one line of JSON. Pure: no clock.
///
/// Every key of a node's snapshot (dashboard_snapshot.hpp) is there and tells of all nodes that
/// have answered: counts are sums, times (`ttft_s`, `itl_s`) those of the node where they are
/// longest, `overlap` that of the node that hides least, `model` what they have in common.
/// `health` is the gateway's own word, `uptime_s` how long it runs itself. `requests` are those
/// that it has open, with what their nodes know of them and the `node`'s name; without its list in
/// time, those of its nodes. `steps` is []: clocks and step numbers are a node's own. Beside these:
///   nodes         [{name, address, state, progress, takes_requests, reason, snapshot}], in the
///                  order of the settings. name: "" until it has said it; state: loading, ready,
///                  draining or failed by its own word, down where it gives none; reason: why it
///                  takes no requests, or why `snapshot` (as that node's own) is null
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/control.hpp"

namespace deepinfer {

struct gateway_part {
  std::string address;
  bool takes_requests = false;
  std::string reason;                 ///< why it takes none
  std::optional<node_health> health;  ///< nothing: it did not answer
  std::string snapshot;               ///< its own; "": it gave none
  std::string failure;                ///< why
};

struct gateway_view {
  node_health health;
  std::optional<request_list> requests;  ///< nothing: the gateway's router did not answer
  std::vector<gateway_part> nodes;
  std::int64_t now_us = 0;
  std::int64_t uptime_s = 0;  ///< of the gateway
};

std::string gateway_snapshot(const gateway_view& view);

}  // namespace deepinfer
