/// What a device runs for one step, and what it says when a phase of it has ended.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer {

/// Phases of a step, in order. copy_in and copy_out have a stream each; forward (fix-up included)
/// and sample share the compute stream.
enum class step_phase : std::uint8_t { copy_in, forward, sample, copy_out };
inline constexpr std::size_t step_phases = 4;

struct device_status {
  errc code = errc::ok;
  bool is_sticky = false;  ///< the device is lost, not just this work
  const char* what = "";   ///< more about it, for people: a literal
};

/// When each phase ran, on the device's clock, in nanoseconds; 0 = did not run.
struct phase_times {
  std::array<std::int64_t, step_phases> begin_ns{};
  std::array<std::int64_t, step_phases> end_ns{};
};

/// One step as a program of phases. A device calls `run` once per phase, in order, each on its
/// stream. Implementations neither throw, allocate, lock nor log in steady state.
class device_work {
public:
  virtual ~device_work() = default;
  virtual step_id step() const = 0;
  virtual device_status run(step_phase phase, const stream_ref& stream) = 0;
};

}  // namespace deepinfer
