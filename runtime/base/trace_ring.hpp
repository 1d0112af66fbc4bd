/// The always-on step trace: what the host and the device did in each of the last N steps.
///
/// One writer (the scheduler of the rank). Nothing is allocated after construction. All times are
/// nanoseconds of the device's clock, which on the CPU is the host's steady clock; 0 = did not run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/device_work.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

/// One settled step.
struct step_trace {
  step_id step;
  rank_id rank;
  const char* kind = "";  ///< "prefill", "decode", "mixed", "empty": a literal
  std::int32_t rows = 0;
  std::int32_t tokens = 0;          ///< query tokens computed
  std::int32_t emitted = 0;         ///< tokens given to clients
  std::int32_t inflight_steps = 0;  ///< launched and unsettled, this one included, at its launch
  std::int32_t carried_rows = 0;    ///< rows remapped to the last step or taken from their slot
  std::int32_t parked_blocks = 0;   ///< deferred behind a fence when it settled
  std::int32_t overrun_rows = 0;    ///< rows of sequences that had ended when it settled
  bool is_after_rest = false;       ///< the rank had nothing to do just before it was planned
  std::int64_t plan_begin_ns = 0, plan_end_ns = 0;
  std::int64_t settle_begin_ns = 0, settle_end_ns = 0;
  phase_times device;
  /// Idle time of the device since the step before it, by what the host was doing then.
  std::int64_t idle_plan_ns = 0, idle_settle_ns = 0, idle_vote_ns = 0, idle_transfer_ns = 0;
  std::int64_t exposed_host_ns = 0;  ///< host work of that time
};

class trace_ring {
public:
  explicit trace_ring(std::size_t steps) : entries_(steps == 0 ? 1 : steps) {}

  void add(const step_trace& entry);

  /// Oldest first, at most `steps` of the newest.
  std::vector<step_trace> newest(std::size_t steps) const;

  std::size_t size() const { return used_; }

private:
  std::vector<step_trace> entries_;
  std::size_t next_ = 0;
  std::size_t used_ = 0;
};

/// Chrome's trace event format, which Perfetto opens: one process per rank with the rows plan,
/// settle, device copy-in, forward, sample and copy-out, and a flow arrow from each plan to its
/// forward. Times are in microseconds, from the first event on.
std::string chrome_trace(std::span<const step_trace> steps);

}  // namespace deepinfer
