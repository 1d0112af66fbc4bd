/// The actor system of a process. A serving process has it, with its network, before there is a
/// model; a node without one makes its own.
#pragma once

#include <memory>

#include "actors/caf_compat.hpp"
#include "config/engine_settings.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

class actor_host {
public:
  /// Without network.
  actor_host();
  ~actor_host();

  caf::actor_system& system() { return *system_; }

private:
  std::unique_ptr<actor_config> config_;
  std::unique_ptr<caf::actor_system> system_;
};

}  // namespace deepinfer
