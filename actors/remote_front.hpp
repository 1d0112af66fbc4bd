/// What a router gets of a node elsewhere; see `replica_link` (router.hpp).
#pragma once

#include <functional>
#include <utility>

#include "actors/protocol.hpp"

namespace deepinfer {

/// The front of a node elsewhere, and who is told that the router has no use of it any more.
struct remote_front {
  remote_front(front_actor at, std::function<void()> left = {})
    : front(std::move(at)),
      on_left(std::move(left)) {}

  front_actor front;
  std::function<void()> on_left;
};

}  // namespace deepinfer
