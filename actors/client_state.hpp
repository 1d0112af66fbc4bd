/// What a client holds of a node: private to actors/, since it names CAF.
#pragma once

#include <atomic>
#include <memory>

#include "actors/client.hpp"
#include "actors/client_hub.hpp"
#include "actors/protocol.hpp"

namespace deepinfer {

/// Ends its hub, and with it every open request. `owner` keeps alive what a client over the network
/// runs on.
class client::state {
public:
  state(caf::actor_system& system, node_door_actor door, std::shared_ptr<void> owner = nullptr);
  ~state();
  state(const state&) = delete;
  state& operator=(const state&) = delete;

  std::shared_ptr<void> owner;
  caf::actor_system* system;
  node_door_actor door;
  client_hub_actor hub;
  std::string name;  ///< what ids of its requests begin with
  std::atomic<std::uint64_t> started{0};
  std::int32_t stream_window = 0;  ///< of streams whose request names none; 0: no bound
};

/// The door that `engine` is a client of.
node_door_actor door_of(const client& engine);

/// The error inside an answer that failed; see `to_caf`.
error from_caf(const caf::error& failure);
caf::error to_caf(const error& failure);

/// Asks from a thread that is not an actor's and waits for the answer, at most `timeout`.
template <class Answer, class Target, class... Args>
result<Answer> ask_and_wait(caf::actor_system& system, const Target& target,
                            std::chrono::milliseconds timeout, Args&&... args) {
  caf::scoped_actor self{system, true};
  result<Answer> out = fail(errc::internal, "no answer");
  self->request(target, timeout, std::forward<Args>(args)...)
    .receive([&out](Answer& answer) { out = std::move(answer); },
             [&out](caf::error& failure) { out = tl::unexpected<error>(from_caf(failure)); });
  return out;
}

}  // namespace deepinfer
