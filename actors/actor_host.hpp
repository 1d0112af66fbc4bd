/// The actor system of a process. A serving process has it, with its network, before there is a
/// model; a node without one makes its own. No type of the actor library is needed to hold one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "config/engine_settings.hpp"
#include "runtime/base/error.hpp"

namespace caf {
class actor_system;
}

namespace deepinfer {

/// Threads of the actor pool. Network and devices have their own.
struct host_options {
  std::size_t threads = 0;  ///< 0: one per core
  /// A thread without work looks this often whether another has some to give away. Work from
  /// outside wakes it at once, so that this matters where handlers take long, as those of a rank.
  std::chrono::milliseconds idle_look{10};
};

class actor_host {
public:
  /// Without network.
  explicit actor_host(host_options options = {});
  ~actor_host();
  actor_host(const actor_host&) = delete;
  actor_host& operator=(const actor_host&) = delete;

  /// With network, which is TLS where the three files are named: every peer then shows one signed
  /// by that authority. They are read here and never again. Nothing is bound yet. Error: bad_config
  /// (not all of the TLS files, one that can't be used, a host for others without TLS).
  static result<std::shared_ptr<actor_host>> open(const actor_settings& settings,
                                                  host_options options = {});

  caf::actor_system& system() { return *system_; }
  bool has_network() const { return has_network_; }
  bool has_tls() const { return has_tls_; }

private:
  struct system_config;
  actor_host(std::unique_ptr<system_config> config, bool has_network, bool has_tls);

  std::unique_ptr<system_config> config_;
  std::unique_ptr<caf::actor_system> system_;
  bool has_network_ = false;
  bool has_tls_ = false;
};

}  // namespace deepinfer
