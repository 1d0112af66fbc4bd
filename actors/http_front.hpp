/// The HTTP front of a node, or of a gateway to nodes elsewhere: an OpenAI-style API as a
/// translation of the client API. What HTTP can do, a client can (client.hpp).
///
/// It listens before there is a model: until `attach`, /health says how far loading is and
/// everything that needs the model is refused with not_ready.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/client.hpp"
#include "config/engine_settings.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/metrics.hpp"

namespace deepinfer {

class http_front {
public:
  /// Binds `settings.server`. `metrics` (null: none) counts requests; it outlives the front.
  /// Errors: port_in_use, bad_config (a key file that can't be read).
  static result<std::unique_ptr<http_front>> open(const engine_settings& settings,
                                                  metrics* counts);
  virtual ~http_front() = default;

  virtual std::uint16_t port() const = 0;

  /// Shown by /health while there is no model: the stage, and how much of it is done.
  virtual void note_loading(double progress, const std::string& stage) = 0;
  /// From now on requests go to `engine`, which the front holds until it stops.
  virtual void attach(client engine) = 0;

  /// New generations are refused with draining, /health/ready says so; running ones go on.
  virtual void begin_drain() = 0;
  /// Answers open at `deadline` end with server_shutdown. Returns when the last has ended.
  virtual void stop(std::chrono::milliseconds deadline) = 0;
};

}  // namespace deepinfer
