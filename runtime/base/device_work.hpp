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
/// and the samplings share the compute stream. sample_gated is run only of a gated work: it samples
/// the rows that had to wait for the host.
enum class step_phase : std::uint8_t { copy_in, forward, sample, sample_gated, copy_out };
inline constexpr std::size_t step_phases = 5;

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
  /// Some rows are sampled only when the host says so: sample_gated and copy_out wait for it.
  virtual bool is_gated() const { return false; }
  /// The phase begins: called by devices on which time passes between that and `run`, so that a
  /// work may look at what it will read; the others only call `run`.
  virtual void begin(step_phase) {}
  virtual device_status run(step_phase phase, const stream_ref& stream) = 0;
};

}  // namespace deepinfer
