/// What one rank's scheduler does, as metrics. Called by the scheduler actor; pure: no clock.
///
/// Several ranks may count into one `metrics`: counters add up, gauges are sums of each rank's
/// share, which leaves with it; what can't be summed has the label `rank`. Nothing is walked and
/// nothing allocated for a step; what only a walk over the sequences tells comes with `note_stats`,
/// called when somebody asks and when the rank rests.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "messages/client.hpp"
#include "messages/kv.hpp"
#include "messages/plan.hpp"
#include "runtime/base/metrics.hpp"
#include "runtime/base/trace_ring.hpp"
#include "runtime/core/bubble_accountant.hpp"
#include "runtime/core/capacity.hpp"
#include "runtime/core/scheduler_config.hpp"

namespace deepinfer {

class rank_metrics {
public:
  /// The rank is up. `counts` outlives this.
  rank_metrics(metrics& counts, const scheduler_config& config);
  ~rank_metrics();  ///< the rank is down
  rank_metrics(const rank_metrics&) = delete;
  rank_metrics& operator=(const rank_metrics&) = delete;

  /// `plan` was launched, as `it` says.
  void note_launch(const step_plan& plan, const step_trace& it);

  /// The oldest launched step was settled; `totals` count it.
  void note_settle(const step_result& result, const step_trace& it, const bubble_totals& totals);

  /// Blocks go to the collector when steps up to `settled` have settled.
  void note_leases(const lease_return& leases, step_id settled, std::int64_t now_ns);

  void note_stats(const scheduler_stats& stats);

  /// No request is unfinished and nothing is in flight.
  void note_rest(const scheduler_stats& stats);

private:
  /// A launched step.
  struct open_step {
    std::int64_t tokens = 0;  ///< most that it may yield
    std::int64_t blocks = 0;  ///< appended to tables
    std::vector<row_kind> kinds;
    std::vector<std::int32_t> widths;
  };
  struct parked_blocks {
    step_id fence;
    std::int64_t since_ns = 0;
  };
  struct host_work {
    std::int64_t hidden_ns = 0, exposed_ns = 0;
  };
  static constexpr std::int64_t window_part = 32;  ///< steps; overlap_ratio is over 8 of these

  open_step& step_of(step_id step) { return open_[step.value % open_.size()]; }
  void end_step_time(std::int64_t end_ns);
  void note_step_time(const step_trace& it);
  void note_decode(const step_trace& it);
  void note_device(const bubble_totals& totals);
  void note_window(const bubble_totals& totals);
  void count_up(metric m, std::uint64_t now, std::uint64_t& before);
  void count_seconds(metric m, std::int64_t ns, std::initializer_list<std::string_view> labels);

  metrics& counts_;
  std::string rank_;
  std::array<open_step, depth_limit + 1> open_;
  gauge_share inflight_steps_, inflight_tokens_, reserved_blocks_, deferred_blocks_, leases_;

  const char* step_kind_ = "";      ///< of the newest step whose forward has begun
  std::int64_t step_begin_ns_ = 0;  ///< 0: none
  std::int64_t step_end_ns_ = 0;
  std::int64_t last_decode_ns_ = 0;  ///< 0: none in this busy period
  std::int64_t decode_gap_ns_ = 0;

  bubble_totals totals_;
  std::array<host_work, 8> window_{};
  std::size_t window_next_ = 0;

  std::vector<parked_blocks> parked_;
  scheduler_stats stats_;  ///< counted so far
};

/// What a node's gauges are at this moment, of all its ranks. For whoever shows metrics. Requests
/// are the router's to count: most of those that wait are in no rank yet.
void refresh(metrics& counts, const node_stats& stats);

}  // namespace deepinfer
