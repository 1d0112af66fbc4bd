/// A node as `ps` and `top` show it: tables and figures as text, the same as JSON.
#pragma once

#include <optional>
#include <string>

#include "messages/client.hpp"
#include "messages/control.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

/// Open requests, one a line under a heading; a sentence where there is none.
std::string request_table(const request_list& list);
json::array request_array(const request_list& list);

struct node_view {
  node_health health;
  node_stats stats;
  request_list requests;
  std::optional<node_stats> before;  ///< what was counted `seconds` earlier
  double seconds = 0.0;
};

/// State, gauges, rates since the look before (since the start without one), and requests.
std::string top_text(const node_view& view);
json::object top_object(const node_view& view);

}  // namespace deepinfer
