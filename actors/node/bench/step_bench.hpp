/// What running ahead buys: steps one after the other, overlapped, and overlapped with drafts, on
/// the same machine in the same run, for host work of several lengths. What `bench step` measures.
///
/// Device time d is that of the real step, forward and sampling. Where no batch is given it grows
/// until d is `step_seconds_min` and a step of depth 1 hardly more than d + h: what messages and
/// waking threads cost would otherwise pass for a gain. Host work h is the real plan and settle,
/// plus a loop on the scheduler's thread that fills it up to the row's share of d; the first row
/// has no loop. The loops are measured out with the d and h of that row; each row then tells its
/// own. Every mode of a row has the same loop. Sync and overlap take turns, `repeats` times; steps
/// with drafts, which are long, run once a row. Figures are medians over these.
///
/// JSON of a row: {"host_share": wanted h / d, 0 without a loop, "loop_seconds", "overlap_gain":
/// sync over overlap, "ideal_gain": (d + h) / max(d, h) as measured, "device_idle": of overlap,
/// "sync_over_sum": sync step over d + h, "drafts_gain": tokens per second over those of sync, or
/// null, "sync", "overlap", "drafts": {"seconds": of a step, "device_seconds", "host_seconds",
/// "host_share", "device_idle", "tokens_per_step": of a row, "tokens_per_second"}, or null}.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/node/bench/step_engine.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

struct step_bench_settings {
  std::vector<double> shares;  ///< of host work, each in (0, 1]
  std::int32_t batch = 0;      ///< 0: chosen
  std::int32_t prompt = 0;     ///< ids of each request
  std::int32_t steps = 0;      ///< decode steps of a run
  std::int32_t repeats = 0;
  std::int32_t drafts = 0;         ///< 0: that mode is left out
  double step_seconds_min = 2e-3;  ///< of the chosen batch
};

/// One way of running, over the repeats of a row.
struct step_mode {
  sample_list seconds, device_seconds, host_seconds, device_idle, tokens;

  void add(const step_sample& one);
  double tokens_per_second() const;
};

struct step_row {
  double host_share = 0.0;
  double loop_seconds = 0.0;
  step_mode sync, overlap;
  std::optional<step_mode> drafts;
  sample_list gains;  ///< sync over overlap, of the runs of one turn: the machine changes slowly
  sample_list sums;   ///< sync over d + h

  double overlap_gain() const;
  double ideal_gain() const;
  double sync_over_sum() const;
  std::optional<double> drafts_gain() const;
};

struct step_bench_result {
  std::int32_t batch = 0;
  std::vector<step_row> rows;
};

/// Loop that fills host work up to `share` of the device's time.
double loop_for(double share, double device_seconds, double host_seconds);

class step_bench {
public:
  static result<step_bench> make(const loaded_model& model, const engine_settings& engine,
                                 const step_bench_settings& settings);

  /// `show` is told what comes next.
  result<step_bench_result> run(const std::function<void(std::string_view)>& show);

private:
  explicit step_bench(const step_bench_settings& settings) : settings_(settings) {}
  result<std::int32_t> choose_batch();
  result<step_row> measure(std::int32_t batch, double share, double loop_seconds);

  step_bench_settings settings_;
  std::unique_ptr<step_engine> sync_, overlap_, drafts_;
};

json::object row_object(const step_row& row, std::int32_t batch);
/// A line for each row, under a heading.
std::string rows_text(const step_bench_result& made);

}  // namespace deepinfer
