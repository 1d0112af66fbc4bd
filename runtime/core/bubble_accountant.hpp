/// Where the device's time went: busy, or idle and why. The bubble is what the engine is about.
///
/// Busy is the compute stream from a step's forward to the end of its sampling, and the gated
/// sampling. Idle are the gaps between; the span is from the first forward to the end of the latest
/// settled step, and busy and idle add up to it exactly. A nanosecond of idle time is caused by
///   what the host was doing then: of several activities the one that began last (noted last);
///   else `no_work`, if no request was unfinished then;
///   else what the host had done last (before its first activity: `plan`, which every step needs).
/// Host time under busy time is hidden, the rest of it is exposed; time outside the span is in
/// neither. Times are those of one clock, in nanoseconds; intervals are [begin, end).
/// Pure: no clock. Single-threaded; nothing allocates after construction. Intervals have to be
/// noted before the step that runs in them is settled (the one host thread that plans and settles
/// can't do otherwise); what comes later counts from the end of that step on. At most
/// interval_limit of each kind wait for a settle; then the oldest is forgotten, and its time has
/// the cause of what was done before it, or `no_work`.
/// Errors: none; intervals that end before they begin are ignored.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/device_work.hpp"

namespace deepinfer {

enum class idle_cause : std::uint8_t { plan, settle, vote, transfer, no_work };
inline constexpr std::size_t idle_causes = 5;

struct bubble_totals {
  std::int64_t busy_ns = 0;
  std::array<std::int64_t, idle_causes> idle_ns{};  ///< by cause
  std::int64_t hidden_host_ns = 0;
  std::int64_t exposed_host_ns = 0;
  std::int64_t steps = 0;
  std::int64_t rows = 0;
  std::int64_t over_run_rows = 0;
  std::int64_t host_waits = 0;

  std::int64_t idle_ns_total() const;
  std::int64_t span_ns() const { return busy_ns + idle_ns_total(); }
  /// Host work hidden under device time, as a share of host work; 1 without any.
  double overlap_ratio() const;
};

class bubble_accountant {
public:
  static constexpr std::size_t interval_limit = 256;

  bubble_accountant();

  /// The host did something, not `no_work`. Activities may overlap and come in any order.
  void note_host(idle_cause what, std::int64_t begin_ns, std::int64_t end_ns);

  /// No request was unfinished.
  void note_no_work(std::int64_t begin_ns, std::int64_t end_ns);

  /// The host waited for a step's results.
  void note_host_wait() { ++totals_.host_waits; }

  /// A step has settled; steps come in launch order. A step whose forward did not run has rows but
  /// no times.
  void settle(const phase_times& times, std::int32_t rows, std::int32_t over_run_rows);

  const bubble_totals& totals() const { return totals_; }

private:
  struct interval {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    idle_cause what = idle_cause::plan;
  };

  static void note(std::vector<interval>& list, interval added);
  void pass(std::int64_t until_ns, bool is_busy);
  void pass_busy(std::int64_t begin_ns, std::int64_t end_ns);
  void forget_passed();

  std::vector<interval> host_;  ///< not passed yet, in the order they were noted
  std::vector<interval> no_work_;
  bool has_begun_ = false;
  std::int64_t passed_ns_ = 0;  ///< everything before is accounted for
  idle_cause last_ = idle_cause::plan;
  bubble_totals totals_;
};

}  // namespace deepinfer
