/// What a client holds of a node: private to actors/, since it names CAF.
#pragma once

#include <functional>

#include "actors/client.hpp"
#include "actors/protocol.hpp"

namespace deepinfer {

struct client::state {
  caf::actor_system* system = nullptr;
  gateway_actor gateway;
  supervisor_actor supervisor;
};

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
