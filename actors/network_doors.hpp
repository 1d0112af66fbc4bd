/// What a serving process is on the network beside HTTP: the door for remote clients, and the nodes
/// around this one, to which the router sends requests as well.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/client.hpp"
#include "actors/node.hpp"
#include "config/engine_settings.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

class actor_host;

class network_doors {
public:
  /// Listens, before there is a model. Null where the settings want no door. Errors: port_in_use,
  /// bad_config.
  static result<std::unique_ptr<network_doors>> open(std::shared_ptr<actor_host> host,
                                                     const engine_settings& settings);
  virtual ~network_doors() = default;  ///< stop()

  virtual std::uint16_t port() const = 0;

  /// Told to who asks how the node is, while there is no model.
  virtual void note_loading(double progress, const std::string& stage) = 0;
  /// From now on the door leads to `engine`, a client of `here`, whose router gets the nodes of the
  /// settings. `here` outlives this, or this is stopped first. Errors: bad_config (an address).
  virtual result<void> attach(const client& engine, node& here) = 0;

  /// Leaves the nodes around and listens no more. Idempotent.
  virtual void stop() = 0;
};

}  // namespace deepinfer
