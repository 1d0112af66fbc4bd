/// Where CAF's version stops: signatures, sending and system settings in the words of this house.
///
/// Debian 12 ships CAF 0.17.6; what changes in later releases is wrapped here and nowhere else.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include <caf/all.hpp>

namespace deepinfer {

/// A request with an answer, and a message without one, in an actor's interface.
template <class Answer, class... Args>
using rpc = typename caf::replies_to<Args...>::template with<Answer>;
template <class... Args>
using note = caf::reacts_to<Args...>;

/// Sends a note. Never blocks; a message to an actor that has left is dropped.
template <class Self, class Target, class... Args>
void tell(Self* self, const Target& target, Args&&... args) {
  self->send(target, std::forward<Args>(args)...);
}

/// Sends a request; `.then(on_answer, on_error)` on the result. Every wait has a deadline: an
/// answer that never comes is an error after `timeout`.
template <class Self, class Target, class... Args>
auto ask(Self* self, const Target& target, std::chrono::microseconds timeout, Args&&... args) {
  return self->request(target, timeout, std::forward<Args>(args)...);
}

/// The same for what a step asks, hundreds of times a second, and which has a deadline elsewhere:
/// the actor library keeps a time-out until it would have come, answered or not.
template <class Self, class Target, class... Args>
auto ask_each_step(Self* self, const Target& target, Args&&... args) {
  return self->request(target, caf::infinite, std::forward<Args>(args)...);
}

/// Sends from a thread that is not an actor's.
template <class Target, class... Args>
void tell_from_outside(const Target& target, Args&&... args) {
  caf::anon_send(target, std::forward<Args>(args)...);
}

/// Whether messages wait for the actor that asks, which is running.
template <class Self>
bool has_more_messages(Self* self) {
  return !self->mailbox().empty();
}

/// The time of the actor's system, which a test may play.
template <class Self>
std::int64_t now_us_of(Self* self) {
  const auto now = self->clock().now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

/// Settings of the actor system. An idle worker sleeps on a condition variable instead of polling:
/// a device thread's wake-up then costs microseconds, and a resting node costs nothing.
class actor_config : public caf::actor_system_config {
public:
  explicit actor_config(std::size_t threads) {
    set("scheduler.max-threads", threads);
    set("work-stealing.moderate-poll-attempts", std::size_t{0});
    set("work-stealing.aggressive-poll-attempts", std::size_t{10});
    set("logger.console", caf::atom("none"));
  }
};

}  // namespace deepinfer
