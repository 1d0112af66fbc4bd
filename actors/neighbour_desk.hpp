/// Where a part of a node finds who answers for the nodes around it: its cluster, once there is
/// one. Thread-safe.
#pragma once

#include <mutex>
#include <utility>

#include "actors/verb_actor.hpp"

namespace deepinfer {

class neighbour_desk {
public:
  void attach(verb_actor cluster) {
    const std::lock_guard lock(mutex_);
    cluster_ = std::move(cluster);
  }
  /// Null: there is none.
  verb_actor look() const {
    const std::lock_guard lock(mutex_);
    return cluster_;
  }

private:
  mutable std::mutex mutex_;
  verb_actor cluster_;
};

}  // namespace deepinfer
