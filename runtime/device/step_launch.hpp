/// Launches one step on a device: its phases in order across the three streams.
///
///   copy_in stream   copy_in ─┐ event
///   compute stream            └─ forward, sample ─┐ event
///   copy_out stream                               └─ copy_out, completion
///
/// A gated work (device_work::is_gated) is launched in two parts: launch_gated_step stops behind
/// sample; finish_step adds sample_gated on the compute stream, copy_out and the completion, when
/// the host has what those rows wait for. Steps launched in between run in between.
///
/// The first phase that fails ends the work: later ones are not run and keep times of 0, and the
/// completion carries that status. Because it is the copy-out stream that calls back, completions
/// come in launch order, failed steps included, and a completion proves that every step launched
/// before on this device has ended, unless its status is sticky.
#pragma once

#include <memory>

#include "runtime/base/device_work.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/device/device.hpp"

namespace deepinfer {

/// Called exactly once per launched step, from a device thread (the virtual device: from the thread
/// that advances its clock). It must not block, throw or destroy the device.
using step_completion = void (*)(void* user, ticket id, device_status status,
                                 const phase_times& times);

/// Enqueues the phases of `work`, which is kept alive until the completion has been called. `user`
/// outlives it. Error overloaded when a stream has no room for the step: nothing was enqueued then.
result<void> launch_step(device& on, std::shared_ptr<device_work> work, ticket id,
                         step_completion completion, void* user);

/// The first part of a gated step: what finish_step needs. Exactly one of the two ends it.
struct held_step;
result<held_step*> launch_gated_step(device& on, std::shared_ptr<device_work> work, ticket id,
                                     step_completion completion, void* user);

/// Enqueues the rest. Error overloaded: nothing was enqueued, and the step is still held.
result<void> finish_step(held_step* step);

/// Nobody will open the gate: the step fails behind its first part, and its completion comes.
void abandon_step(held_step* step);

}  // namespace deepinfer
