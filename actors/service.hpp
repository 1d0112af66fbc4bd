/// A serving process: the doors (HTTP and the network's), the engine behind them, and the order in
/// which they come and go.
///
/// `open` binds both ports before anything is loaded, so that a port in use is known at once;
/// `load` brings the model while /health tells how far it is; `connect` puts nodes elsewhere in its
/// place. To stop: `begin_drain` refuses new requests, `stop` ends HTTP, then the network's
/// door, then the engine.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/actor_host.hpp"
#include "actors/client.hpp"
#include "actors/live_config.hpp"
#include "actors/node.hpp"
#include "actors/peer_engine.hpp"
#include "actors/service_text.hpp"
#include "config/effective.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

class http_front;
class network_doors;

class service {
public:
  /// `model_name` labels the metrics. Errors: port_in_use, bad_config.
  static result<std::unique_ptr<service>>
  open(effective_config config, const std::string& model_name, const host_options& pool = {});
  ~service();  ///< stop(0)
  service(const service&) = delete;
  service& operator=(const service&) = delete;

  /// Where HTTP listens, with the port that was bound.
  const std::string& url() const { return url_; }

  /// Loads the model at `path`, lets it answer once, and opens the doors to it. `on_progress` is
  /// called on this thread. Errors: those of `node::load`, and of that first answer.
  result<void> load(const std::string& path, const load_progress& on_progress);

  /// Requests go to nodes elsewhere. Errors: those of `open_peers`.
  result<void> connect(const peer_options& peers);

  /// Null before there is one.
  const node* engine() const { return node_.get(); }
  /// Where remote clients find this; nothing without that door.
  std::optional<std::uint16_t> actor_port() const;

  /// What status lines are made of; nothing while the engine doesn't answer.
  std::optional<service_counts> counts() const;
  /// The lines of SIGUSR1: what the engine counted, and its open requests.
  std::string report() const;
  std::chrono::milliseconds stats_interval() const;

  /// New requests are refused with draining. `on_idle` is called once, from any thread, when none
  /// is open or `limit` is over.
  void begin_drain(std::chrono::milliseconds limit, std::function<void()> on_idle);

  /// Answers that are open at `deadline` end with server_shutdown. Idempotent.
  void stop(std::chrono::milliseconds deadline);

private:
  service(effective_config config, node_parts parts);
  result<void> warm_up(const client& engine) const;
  result<void> open_doors();
  void note_loading(double progress, const std::string& stage);
  void write_trace() const;

  effective_config config_;            ///< as given
  std::shared_ptr<live_config> live_;  ///< as it holds now
  node_parts parts_;                   ///< outlive front and node
  bool is_gateway_ = false;
  std::unique_ptr<http_front> front_;
  std::unique_ptr<node> node_;
  std::unique_ptr<network_doors> network_;  ///< knows the node
  std::optional<client> engine_;
  std::string url_;
};

}  // namespace deepinfer
