/// The whole product at work without a network: batches of requests with random prompts on a
/// node of this process, every step timed and its work counted. What `bench offline` measures.
///
/// Phases never share a count: prefill is one request whose prompt runs in steps of nothing else
/// and whose first token ends it; decode counts the decode steps of a batch alone, whose requests
/// are all there before the engine, paused until then, takes the first of them. Each phase runs
/// once to warm up, then `repeats` times, with probes of the machine before and after each.
/// Errors: bad_config where the sizes do not fit the node's or its trace, deadline_exceeded
/// where the engine does not answer, and those of requests.
///
/// JSON of a phase: {"batch", "steps", "tokens_per_second": summary over repeats, "seconds":
/// summary of a step, "bytes", "flops", "int8_ops": what a step needs at least, "bound_seconds",
/// "bound_by" ("bandwidth", "f32", "int8"), "share": bound over the median step, "share_in_ops":
/// how much of the steps' time passed between begin and end of ops on the compute stream,
/// "share_in_kernels": time that kernel threads spent at work inside kernels, over threads times
/// the steps' time, "host_seconds": plan and settle of a step, "host_share": of the steps' time,
/// "request_seconds": summary over repeats, "parts" and "ops": [{"name", "calls", "seconds",
/// "share", "bytes", "flops", "int8_ops"}], all of a step}. A phase without counted work has null
/// from "bytes" to "share_in_kernels". Draft passes are in bench_drafts.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/client.hpp"
#include "actors/node.hpp"
#include "actors/node/bench/bench_machine.hpp"
#include "actors/node/bench/bench_steps.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/work_meter.hpp"

namespace deepinfer {

struct offline_settings {
  std::vector<std::int32_t> batches;
  std::int32_t prompt = 0;   ///< ids of each request of a batch
  std::int32_t tokens = 0;   ///< outputs of each
  std::int32_t prefill = 0;  ///< ids of the prefill request; 0: not measured
  std::int32_t repeats = 0;
  float temperature = 0;
  float top_p = 1;
  std::uint64_t seed = 0;  ///< of prompts and choices
};

/// What a meter held when its device was idle.
struct counted_work {
  std::vector<work_meter::entry> ops, parts;
  work_cost total;
  std::int64_t op_ns = 0;
  std::int64_t busy_ns = 0;
};
counted_work counted_by(const work_meter& meter);

/// Ids that follow from a seed, each anew.
class random_ids {
public:
  random_ids(std::uint64_t seed, std::int32_t vocab_size)
    : seed_(seed),
      vocab_(static_cast<std::uint64_t>(vocab_size)) {}

  std::vector<token_id> draw(std::int32_t count);
  std::uint64_t drawn() const { return drawn_; }

private:
  std::uint64_t seed_, vocab_;
  std::uint64_t drawn_ = 0;
};

struct offline_phase {
  std::int32_t batch = 0;
  step_times steps;
  counted_work work;            ///< of all `steps`
  sample_list request_seconds;  ///< from the start of the batch to the last token got
};

struct offline_result {
  std::optional<offline_phase> prefill;
  std::vector<offline_phase> decode;
  machine_rates rates;
};

/// Two meters, as the device fills them.
class step_meters {
public:
  step_meters();
  work_meter& for_device() { return other_; }

  void clear();
  counted_work of_decode() const;
  counted_work of_others() const;

private:
  work_meter other_;
  work_meter decode_;
};

class offline_bench {
public:
  /// `meters` are those that `engine` was loaded with; both outlive this.
  offline_bench(const node& engine, step_meters& meters, const offline_settings& settings);

  /// Measures everything; `show` is told what comes next.
  result<offline_result> run(const std::function<void(std::string_view)>& show);

private:
  result<void> check() const;
  result<offline_phase> measure(std::int32_t batch, std::int32_t prompt, std::int32_t tokens);
  result<double> run_batch(std::int32_t batch, std::int32_t prompt, std::int32_t tokens);
  result<void> wait_until_idle() const;
  result<std::vector<traced_step>> new_steps();
  void probe_machine();

  const node& engine_;
  step_meters& meters_;
  const offline_settings settings_;
  std::unique_ptr<thread_team> team_;
  std::optional<machine_probe> probe_;  ///< from `run` on
  machine_rates rates_;
  random_ids ids_;
  std::uint64_t last_step_ = 0;
};

json::object phase_object(const offline_phase& phase, const machine_rates& rates);
/// Its figures one by one, then its parts and its costliest ops.
std::string phase_text(const offline_phase& phase, std::string_view name,
                       const machine_rates& rates);

}  // namespace deepinfer
