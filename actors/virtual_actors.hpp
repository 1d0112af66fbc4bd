/// An actor system on one thread and a virtual clock: every run with equal choices is equal.
///
/// One message of one actor is processed at a time. In the order of the language (`choice` 0) ready
/// actors take turns in the order they became ready, and an actor whose next message is a turn of a
/// scheduler's loop comes only when nobody else is ready: messages first, then loops. With another
/// choice the next actor is drawn; each actor's own messages keep their order.
/// Nothing here waits; nobody else may run actors of the system (no detached ones, no threads).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "actors/caf_compat.hpp"

namespace deepinfer {

class virtual_actors {
public:
  explicit virtual_actors(std::uint64_t choice);
  ~virtual_actors();
  virtual_actors(const virtual_actors&) = delete;
  virtual_actors& operator=(const virtual_actors&) = delete;

  caf::actor_system& system();

  /// Processes one message; false: nobody has one.
  bool run_one();
  void run_all() {
    while (run_one()) {
    }
  }

  /// When the next delayed message or time-out is due; nanoseconds since the start.
  std::optional<std::int64_t> next_timeout_ns() const;
  /// Delayed messages and time-outs that have not come.
  std::size_t timeouts() const;
  /// Sets the clock and sends what is due by then. Never back.
  void advance_to(std::int64_t ns);

  std::uint64_t messages() const { return messages_; }

private:
  struct machinery;
  std::unique_ptr<machinery> it_;
  std::uint64_t messages_ = 0;
};

}  // namespace deepinfer
