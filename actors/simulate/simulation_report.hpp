/// What a simulation came to, in numbers, as a table and as JSON.
///
/// TTFT: arrival to the first token at the client, of requests that got one. TPOT: first to last
/// token over the tokens behind the first, of requests with two or more. Percentiles are nearest
/// ranks: the least value that at least so many per cent do not exceed. Seconds run from the first
/// arrival to the end of the last request; busy and idle are the device's, from its first step to
/// the end of its last. A rate of nothing is null in JSON and "-" in the table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/simulate/simulation.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

struct latency_summary {
  std::int64_t count = 0;
  double mean_ns = 0;
  std::int64_t p50_ns = 0, p90_ns = 0, p99_ns = 0;
};

/// Sorts `values_ns`.
latency_summary latency_of(std::vector<std::int64_t> values_ns);

struct simulation_report {
  std::string label;      ///< what distinguishes the run, e.g. "depth=1"; may be empty
  json::object settings;  ///< that it ran with
  std::int64_t requests = 0, done = 0, failed = 0;
  double seconds = 0;
  std::int64_t output_tokens = 0;
  double tokens_per_second = 0;
  latency_summary ttft, tpot;
  std::uint64_t preemptions = 0;
  std::optional<double> prefix_hit_rate;    ///< prompt tokens that were cached
  std::optional<double> draft_accept_rate;  ///< verified drafts that were emitted
  std::uint64_t over_run_rows = 0;
  bubble_totals device;
  std::optional<double> rows_mean;  ///< of a step
  std::uint64_t canary_errors = 0;
  std::string failure;  ///< why the first request that failed did
};

simulation_report report_of(const simulation_outcome& outcome);

/// Runs side by side, one metric a line.
std::string table_of(std::span<const simulation_report> runs);

json::object object_of(const simulation_report& run);

/// 0; 10 where a canary saw an error: the engine is broken; 1 where a run has served nobody.
int exit_code_of(std::span<const simulation_report> runs);

}  // namespace deepinfer
