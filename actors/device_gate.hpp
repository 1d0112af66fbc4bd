/// Device gate: a device completion becomes the answer to a message. Messages: protocol.hpp.
///
/// A device thread knows a function and a pointer, never a promise: its call sends (fired, ticket,
/// status, times) here, and the gate finds the promise. Each ticket has a deadline (`watchdog`). A
/// time-out is not a completion: the promise fails and the ticket is quarantined; whoever asks for
/// `recover` is told when its own completion, or one of a later step, has proved that it ended.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "actors/pending.hpp"
#include "actors/protocol.hpp"
#include "runtime/device/watchdog.hpp"

namespace deepinfer {

class device;
struct held_step;

/// What completions of one gate are called with. Outlives every launched step: the rank's
/// supervisor keeps it until the device has drained.
struct device_door {
  virtual ~device_door() = default;

  device_gate_actor gate;
};

struct device_gate_config {
  device* on = nullptr;
  device_door* door = nullptr;
  std::chrono::microseconds watchdog{};  ///< a ticket unanswered for this long has failed
};

struct device_gate_state {
  static inline const char* name = "device_gate";

  device_gate_state() = default;
  device_gate_state(const device_gate_state&) = delete;
  ~device_gate_state();  ///< steps whose gate nobody will open fail

  device_gate_config config;
  std::optional<watchdog> dog;
  /// Steps reach the device in launch order, whatever the order of their messages [I01].
  struct early_step {
    submit_step step;
    caf::typed_response_promise<step_done> promise;
  };
  std::uint64_t next_step = 0;  ///< 0: the first to come
  std::map<std::uint64_t, early_step> early;
  std::map<step_id, held_step*> held;  ///< gated steps whose masks are not there
  std::set<step_id> opened;            ///< gates that were opened before their step came
  std::uint64_t last_ticket = 0;
  bool looks_for_late = false;  ///< a message is on its way
  std::map<ticket, step_id> steps;  ///< of tickets whose work is not proven to have ended
  pending<step_done> launched;
  pending<step_done> recovering;
};

device_gate_actor::behavior_type
device_gate(device_gate_actor::stateful_pointer<device_gate_state> self, device_gate_config config);

}  // namespace deepinfer
