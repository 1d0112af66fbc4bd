/// Work of a bench on a thread of its own, as a device's stream has one, which the team may pin.
#pragma once

#include <optional>
#include <thread>
#include <utility>

#include "runtime/device/cpu_team.hpp"

namespace deepinfer {

/// What `work` returns, once it has.
template <class Work>
auto on_team_thread(const cpu_team& team, const Work& work) {
  std::optional<decltype(work())> out;
  std::thread measuring([&] {
    team.pin_caller();
    out.emplace(work());
  });
  measuring.join();
  return std::move(*out);
}

}  // namespace deepinfer
