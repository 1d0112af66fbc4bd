/// Kernels with data to run on, and how long they take: what `bench kernels` measures.
///
/// Every case goes through a device's table of functions (kernels/ops.hpp). Products rotate over
/// more weights than the caches hold, as a decode step does; all other data is as small as in a
/// step. Values are random, fixed by the case, and never NaN or denormal.
/// Errors: no_device where a case's memory is not to be had.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "actors/node/bench/bench_machine.hpp"
#include "kernels/ops.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// Bytes of weights that a product's calls go through before they come back to the first.
inline constexpr std::size_t rotated_bytes = std::size_t{96} << 20;

struct kernel_case {
  std::string name;   ///< the op's
  std::string type;   ///< of the weights as stored or packed; "" where there are none
  std::string shape;  ///< for people
  std::int64_t rows = 0;
  std::int64_t calls = 0;  ///< of one pass over the rotated data, the most of a repeat; 0: any
  bool on_all_cores = false;
  std::int64_t packed_bytes = 0;  ///< of the weights that a call needs, as the kernel reads them
  std::int64_t stored_bytes = 0;  ///< the same as a checkpoint stores them
  /// One call; `call` counts up and may choose the data. Keeps its data alive.
  std::function<void(const stream_ref&, std::int64_t call)> run;
};

/// A case that is made when its turn comes, as its data may be large.
struct case_source {
  std::string name;
  std::function<result<kernel_case>()> make;
};

/// How weights are stored and packed: "f32", "bf16", "e4m3", "e2m1" for f32 activations, "i8" (from
/// e4m3) and "i4" (from e2m1) for int8 ones.
const std::vector<std::string>& weight_types();

/// linear [2048, 2048] and expert_ffn (64 experts of 1024 and 512, 6 a token).
std::vector<case_source> product_cases(const kernels::ops& ops, std::span<const std::string> types,
                                       std::span<const std::int32_t> rows);
/// What else a layer does, op by op, at the sizes of a model of width 1024.
std::vector<case_source> layer_cases(const kernels::ops& ops, std::span<const std::int32_t> rows);
/// The fused ops of an attention sublayer at the same sizes.
std::vector<case_source> attention_cases(const kernels::ops& ops,
                                         std::span<const std::int32_t> rows);
/// 32 rows of 129,280 logits, temperature 1, top_p 0.95, no top_k: flat and peaked ones.
std::vector<case_source> sampling_cases(const kernels::ops& ops);

/// What was measured of one case; `run` is gone.
struct kernel_result {
  kernel_case facts;
  std::int32_t threads = 1;
  std::int64_t calls = 0;  ///< per repeat
  sample_list seconds;     ///< of a call, one sample per repeat
  work_cost cost;          ///< of a call, as the op counts it
};

/// Runs `repeats` passes, with a probe of `rates` on the same team before each.
class kernel_stopwatch {
public:
  kernel_stopwatch(machine_probe& probe, thread_team& team, thread_team& all_cores,
                   std::int32_t repeats)
    : probe_(probe),
      team_(team),
      all_cores_(all_cores),
      repeats_(repeats) {}

  kernel_result measure(kernel_case it);
  const machine_rates& rates() const { return rates_; }

private:
  machine_probe& probe_;
  thread_team& team_;
  thread_team& all_cores_;
  std::int32_t repeats_;
  machine_rates rates_;  ///< of `team`
};

/// One entry of "kernels" in the JSON: {"name", "type" or null, "shape", "rows", "threads",
/// "calls", "seconds": summary of a call, "seconds_per_row": of the median, "packed_bytes" and
/// "stored_bytes" or null, "bytes", "flops", "int8_ops": what a call needs, "bytes_per_second",
/// "ops_per_second": of the median, "bound_seconds", "bound_by" ("bandwidth", "f32", "int8"),
/// "share", "share_best": bound over median and over best time; the last four null where no work is
/// counted or the case ran on other threads than the rates}.
json::object kernel_object(const kernel_result& it, const machine_rates& rates);
/// What the columns mean, then a table for each op and shape, in order of appearance.
std::string kernel_table(std::span<const kernel_result> results, const machine_rates& rates);

}  // namespace deepinfer
