/// Launches one step on a device: its phases in order across the three streams.
///
///   copy_in stream   copy_in ─┐ event
///   compute stream            └─ forward, sample ─┐ event
///   copy_out stream                               └─ copy_out, completion
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

}  // namespace deepinfer
