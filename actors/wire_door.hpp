/// The door of a node for clients and nodes elsewhere: listens on the actor port, before there is a
/// model. Until `attach`, health says how far loading is and everything else not_ready.
///
/// Who says hello with a key that is listed gets a session (wire_session.hpp) of its own. Without
/// listed keys everybody does. The network itself asks nobody who he is, unless it is TLS: a
/// door that others than this machine's users can reach needs that (actor_host.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/actor_host.hpp"
#include "actors/client.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

class door_desk;

struct wire_door_options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 4242;      ///< 0: any free one
  std::string node_name;          ///< empty: the machine's name and the port
  std::vector<std::string> keys;  ///< KEY or NAME=KEY (secret.hpp); empty: anybody may come
  std::int32_t max_sessions = 4096;
};

class wire_door {
public:
  /// Listens. Errors: port_in_use, bad_config (`host` has no network).
  static result<std::unique_ptr<wire_door>> open(std::shared_ptr<actor_host> host,
                                                 const wire_door_options& options);
  ~wire_door();  ///< stop()
  wire_door(const wire_door&) = delete;
  wire_door& operator=(const wire_door&) = delete;

  std::uint16_t port() const { return port_; }
  const std::string& node_name() const { return node_name_; }

  /// Told to who asks for the node's health while there is no model.
  void note_loading(double progress, const std::string& stage);
  /// From now on requests go to the engine that `engine` is a client of.
  void attach(const client& engine);
  /// What its sessions know of the node.
  const std::shared_ptr<door_desk>& desk() const;

  /// Listens no more; open requests of links end with server_shutdown. Idempotent.
  void stop();

private:
  struct parts;
  explicit wire_door(std::unique_ptr<parts> opened);

  std::unique_ptr<parts> parts_;
  std::uint16_t port_ = 0;
  std::string node_name_;
};

}  // namespace deepinfer
