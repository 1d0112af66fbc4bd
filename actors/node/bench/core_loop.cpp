#include "actors/node/bench/core_loop.hpp"

#include <deque>
#include <utility>
#include <vector>

#include "actors/node/bench/core_result.hpp"
#include "runtime/base/check.hpp"
#include "runtime/core/kv_pool.hpp"
#include "runtime/core/release_queue.hpp"
#include "runtime/core/scheduler_core.hpp"
#include "runtime/device/spin.hpp"

namespace deepinfer {
namespace {

constexpr std::int32_t depth = 2;
constexpr std::int32_t prompt_ids = 16;
constexpr std::int32_t warm_up_steps = window_steps;
constexpr int turns_max = 8;

/// Outputs that no row reaches.
std::int32_t outputs_of(const core_bench_sizes& sizes) {
  return (warm_up_steps + sizes.steps + window_steps) * (1 + sizes.num_drafts);
}

kv_pool_config pool_of(const scheduler_config& config) {
  kv_pool_config out;
  out.num_kv_blocks = config.num_kv_blocks;
  out.state_slots = config.state_slots;
  return out;
}

/// Scheduler, allocator and collector as function calls.
class loop {
public:
  explicit loop(const core_bench_sizes& sizes)
    : sizes_(sizes),
      config_(core_bench_config(sizes)),
      core_(config_, {}),
      pool_(pool_of(config_)) {
    for (auto& request : core_bench_requests(sizes)) core_.submit(std::move(request), 0);
    exchange();
  }

  /// One step: launches until `depth` are in flight, settles the oldest. Timed nanoseconds.
  std::int64_t step() {
    timed_ns_ = 0;
    // A start may wait a turn for its credit.
    for (int turn = 0; turn < turns_max && (launch() || launched_.empty()); ++turn) exchange();
    DI_CHECK(!launched_.empty(), "nothing can be launched at step {}",
             core_.newest_launched().value);
    make_result(launched_.front(), sizes_.num_drafts, result_);
    const auto begin = steady_now_ns();
    core_.settle(result_);
    timed_ns_ += steady_now_ns() - begin;
    spare_.push_back(std::move(launched_.front()));
    launched_.pop_front();
    exchange();
    return timed_ns_;
  }

private:
  bool launch() {
    if (core_.in_flight() == depth) return false;
    if (spare_.empty()) spare_.emplace_back();
    const auto begin = steady_now_ns();
    const bool planned = core_.plan(spare_.back());
    timed_ns_ += steady_now_ns() - begin;
    if (!planned) return false;
    launched_.push_back(std::move(spare_.back()));
    spare_.pop_back();
    return true;
  }

  void exchange() {
    auto begin = steady_now_ns();
    core_.take_outbox(box_);
    timed_ns_ += steady_now_ns() - begin;
    if (box_.has_want()) take(pool_.reserve(box_.want));
    if (!box_.has_leases()) return;
    const auto freed = collector_.take(std::move(box_.leases));
    if (!freed.blocks.empty() || !freed.slots.empty()) take(pool_.release(freed));
  }

  void take(const kv_grant& granted) {
    const auto begin = steady_now_ns();
    core_.grant(granted);
    timed_ns_ += steady_now_ns() - begin;
  }

  core_bench_sizes sizes_;
  scheduler_config config_;
  scheduler_core core_;
  kv_pool pool_;
  release_queue collector_{rank_id{}};
  scheduler_outbox box_;
  std::vector<step_plan> spare_;
  std::deque<step_plan> launched_;
  step_result result_;
  std::int64_t timed_ns_ = 0;
};

}  // namespace

scheduler_config core_bench_config(const core_bench_sizes& sizes) {
  scheduler_config out;
  const pipeline_shape shape{depth, sizes.num_drafts, 0};
  out.depth = depth;
  out.num_drafts = sizes.num_drafts;
  out.max_num_seqs = sizes.rows;
  out.state_slots = sizes.rows * depth;
  out.max_num_batched_tokens = sizes.rows * (prompt_ids + sizes.num_drafts);
  out.max_model_len = prompt_ids + outputs_of(sizes) + static_cast<std::int32_t>(shape.margin());
  const auto blocks = blocks_for(out.max_model_len + shape.margin(), out.block_size);
  out.num_kv_blocks = static_cast<std::int32_t>(blocks) * sizes.rows;
  out.vocab_size = 2 * made_token;
  return out;
}

std::vector<sequence_request> core_bench_requests(const core_bench_sizes& sizes) {
  sampling_params params;
  params.max_tokens = outputs_of(sizes);
  params.ignore_eos = true;
  const auto shared = std::make_shared<const sampling_params>(std::move(params));
  const auto prompt = std::make_shared<const std::vector<token_id>>(prompt_ids, made_token);
  std::vector<sequence_request> out;
  for (std::int32_t row = 0; row < sizes.rows; ++row) {
    sequence_request request;
    request.sequence = {static_cast<std::uint64_t>(row) + 1};
    request.prompt = prompt;
    request.params = shared;
    out.push_back(std::move(request));
  }
  return out;
}

sample_list run_core_loop(const core_bench_sizes& sizes) {
  loop it(sizes);
  for (std::int32_t step = 0; step < warm_up_steps; ++step) static_cast<void>(it.step());
  sample_list out;
  for (std::int32_t done = 0; done < sizes.steps; done += window_steps) {
    std::int64_t ns = 0;
    for (std::int32_t step = 0; step < window_steps; ++step) ns += it.step();
    out.add(1e-9 * static_cast<double>(ns) / window_steps);
  }
  return out;
}

}  // namespace deepinfer
