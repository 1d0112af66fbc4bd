/// A rank's actors on real threads over a device that does nothing: what a step costs the host.
///
/// Supervisor, scheduler, worker, allocator, collector and gate are the product's. The device runs
/// a phase where it is enqueued, the runner answers by rule (core_result.hpp), and a gateway of its
/// own drops the chunks: what clients cost is not in the figures. The time of a step is that
/// between two settled ones, as the scheduler sees it, so waking threads is in it.
/// Errors: deadline_exceeded where the steps do not come, and those of an actor that is gone.
#pragma once

#include <cstdint>

#include "actors/node/bench/bench_statistics.hpp"
#include "actors/node/bench/core_loop.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

struct actors_cost {
  sample_list seconds;  ///< of a step, one sample per window
  double messages_per_step = 0.0;
};

result<actors_cost> run_core_actors(const core_bench_sizes& sizes);

}  // namespace deepinfer
