/// The life of a serving process after its doors are open: signals, status lines, the drain.
#pragma once

#include "actors/node/signals.hpp"
#include "actors/service.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// Logs what this build and machine are, settings that are not at their default, and warnings.
void log_banner(const effective_config& config);

/// Runs until the process is asked to stop, then drains for at most `limit`. Answers that are open
/// at its end, or when it is asked a second time, end with server_shutdown. Gives the exit code.
int serve_until_stopped(service& it, signal_queue& signals, std::chrono::milliseconds limit);

}  // namespace deepinfer
