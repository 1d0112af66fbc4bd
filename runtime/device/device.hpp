/// The seam between the engine and what runs a step: three in-order streams, events, memory, a
/// clock.
///
/// A stream runs its tasks one after the other; streams know of each other only through events. An
/// event here is one recording: `record` names the work enqueued on a stream so far, and a wait for
/// that mark means this work and no later one, whatever is recorded afterwards [I24]. So nothing
/// can be re-recorded under a waiter.
///
/// Work belongs to steps (device_work.hpp) and is put on the streams by launch_step
/// (step_launch.hpp); everything else here serves that function. Devices call back from threads of
/// their own (the virtual one from whoever advances its clock) through plain function pointers:
/// they know no actors.
///
/// One thread at a time enqueues. Callbacks may enqueue in turn, but do not wait for the device.
/// Destroying a device ends its work first: what was enqueued is run, or failed after abort(), and
/// every completion is called before the destructor returns. Nothing is enqueued meanwhile.
/// Source: architecture 5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/device_work.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/device/arena.hpp"

namespace deepinfer {

enum class stream_kind : std::uint8_t { copy_in, compute, copy_out };
inline constexpr std::size_t device_streams = 3;

constexpr stream_kind stream_of(step_phase phase) {
  switch (phase) {
  case step_phase::copy_in: return stream_kind::copy_in;
  case step_phase::copy_out: return stream_kind::copy_out;
  default: return stream_kind::compute;
  }
}

/// "copy_in", "compute", "copy_out"; and of each phase.
std::string_view name_of(stream_kind stream);
std::string_view name_of(step_phase phase);

/// The work that had been enqueued on `stream` when this was recorded: its first `generation`
/// tasks.
struct event_mark {
  stream_kind stream = stream_kind::copy_in;
  std::uint64_t generation = 0;
};

/// What a task is told when its turn comes.
struct task_context {
  stream_ref stream;
  std::int64_t begin_ns = 0;  ///< when it began on the device's clock; it ends when it returns
  device_status status;       ///< not ok: the device failed it, run nothing
  bool is_lost = false;       ///< an injected fault: clean up, but tell nobody
};

/// A task: called exactly once. `step` and `phase` say what it belongs to.
struct stream_task {
  void (*run)(void* user, const task_context& context) = nullptr;
  void* user = nullptr;
  step_id step;
  step_phase phase = step_phase::copy_in;
  bool is_callback = false;  ///< tells the host something; takes no device time
  /// When it begins, on devices where it takes time (device_work::begin); not if it has failed.
  void (*begin)(void* user) = nullptr;
};

enum class memory_kind : std::uint8_t { pinned, device };

class device {
public:
  virtual ~device() = default;

  virtual std::string_view name() const = 0;

  /// Nanoseconds on the device's clock; never goes back.
  virtual std::int64_t now_ns() const = 0;

  /// How many more tasks and waits fit `stream` now. The limit is fixed at construction.
  virtual std::int32_t room(stream_kind stream) const = 0;

  /// Appends a task. No room is a programmer's error: ask first.
  virtual void enqueue(stream_kind stream, const stream_task& task) = 0;

  /// Names what `stream` holds so far. Takes no room.
  virtual event_mark record(stream_kind stream) = 0;

  /// Makes later tasks of `stream` wait for what `mark` names.
  virtual void wait(stream_kind stream, event_mark mark) = 0;

  /// Whether what `mark` names has ended.
  virtual bool has_ended(event_mark mark) const = 0;

  /// Fails every task that has not begun (status {device_failed, sticky}); their completions still
  /// come, in order. For good.
  virtual void abort() = 0;

  /// Error no_device when the memory is not to be had.
  virtual result<arena> make_arena(memory_kind kind, std::size_t bytes) = 0;
};

}  // namespace deepinfer
