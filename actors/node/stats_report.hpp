/// What the engine counted, for people and programs: `--stats`, and the part of the line of figures
/// that is about the device.
#pragma once

#include <string>

#include "messages/client.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

/// Idle time of the device as a share of the time in which a request was unfinished.
double idle_share(const node_stats& stats);

/// "device idle 4 % (plan 3, settle 1)": that share, and by what the host was doing then; causes
/// below half a percent are left out.
std::string idle_text(const node_stats& stats);

/// A line for each subject: steps, device, KV, and what has happened of the rest.
std::string stats_text(const node_stats& stats);

/// Every field by its name.
json::object stats_object(const node_stats& stats);

}  // namespace deepinfer
