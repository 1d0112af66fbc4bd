/// The scheduler's core alone in a loop, with its pool and release queue and hand-made results.
///
/// All rows start in one step and decode from then on; depth 2. Timed is what the scheduler does of
/// a step: plan, settle, take the outbox, take the grant; not the making of results, and not what
/// the allocator and the collector do. Figures are per window of `window_steps` steps.
/// Instructions: valgrind --tool=callgrind build/release/bin/deepinfer bench core --rows 256
/// --no-actors, then callgrind_annotate --inclusive=yes; divide by rows and steps.
#pragma once

#include <cstdint>
#include <memory>

#include "actors/node/bench/bench_statistics.hpp"
#include "messages/request.hpp"
#include "runtime/core/scheduler_config.hpp"

namespace deepinfer {

inline constexpr std::int32_t window_steps = 100;

struct core_bench_sizes {
  std::int32_t rows = 0;
  std::int32_t num_drafts = 0;
  std::int32_t steps = 0;  ///< decode steps measured, a multiple of window_steps
};

/// A configuration in which no row waits for anything and none ends in so many steps, and the
/// requests for it.
scheduler_config core_bench_config(const core_bench_sizes& sizes);
std::vector<sequence_request> core_bench_requests(const core_bench_sizes& sizes);

/// Seconds of a step, one sample per window.
sample_list run_core_loop(const core_bench_sizes& sizes);

}  // namespace deepinfer
