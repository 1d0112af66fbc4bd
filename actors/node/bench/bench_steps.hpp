/// Steps of an engine as its trace tells them: when the device ran each, and what the host spent.
///
/// Read from the Chrome trace that `node::trace` gives, which is exact to the nanosecond.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/node/bench/bench_statistics.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// One settled step; seconds since the first event of the trace.
struct traced_step {
  std::uint64_t step = 0;
  std::string kind;  ///< "prefill", "decode", "mixed", "empty"
  std::int32_t rows = 0;
  std::int32_t tokens = 0;
  double begin = 0.0;         ///< of the forward
  double end = 0.0;           ///< of the sampling, or of the forward without one
  double host_seconds = 0.0;  ///< plan and settle
};

/// The steps of a trace after `last_seen`, in order. Error internal: the text is not such a trace.
result<std::vector<traced_step>> read_steps(std::string_view trace, std::uint64_t last_seen = 0);

/// How long the steps of one kind take. A step lasts from the begin of its forward to that of the
/// next step, or to its own end where nothing follows it.
struct step_times {
  sample_list seconds;          ///< of steps with the wanted number of rows
  std::int64_t steps = 0;       ///< all of the kind
  std::int64_t rows = 0;        ///< of these
  std::int64_t tokens = 0;      ///< of these
  double span_seconds = 0.0;    ///< sum over these
  double host_seconds = 0.0;    ///< sum over these
  sample_list rows_per_second;  ///< one per call of `add`

  /// Adds the steps of `kind`; those of `rows` rows (0: any) give samples.
  void add(const std::vector<traced_step>& steps, std::string_view kind, std::int32_t rows_wanted);
};

}  // namespace deepinfer
