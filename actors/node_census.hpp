/// How many nodes are known, as the metric `cluster_nodes` tells: this one and others, each once,
/// whatever ways lead to it. One part of a process counts: its cluster, or the front of a gateway,
/// which is no node itself.
#pragma once

#include <map>
#include <string>

#include "runtime/base/metrics.hpp"

namespace deepinfer {

class node_census {
public:
  /// A way to a node; the node is up where one of its ways is.
  void note(const std::string& name, bool is_up) {
    auto& known = nodes_[name];
    known = known || is_up;
  }

  std::size_t up() const {
    std::size_t out = 0;
    for (const auto& [name, is_up] : nodes_) out += is_up;
    return out;
  }
  std::size_t down() const { return nodes_.size() - up(); }

  /// Null: nothing is counted.
  void tell(metrics* counts) const {
    if (!counts) return;
    counts->set(metric::cluster_nodes, static_cast<double>(up()), {"up"});
    counts->set(metric::cluster_nodes, static_cast<double>(down()), {"down"});
  }

private:
  std::map<std::string, bool> nodes_;
};

}  // namespace deepinfer
