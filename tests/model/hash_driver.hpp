/// Plans steps for the hash model as a scheduler would, and keeps the books a test needs:
/// sequences, blocks taken from a shuffled pool, the remap, up to `depth` steps in flight on a real
/// device.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "runtime/device/cpu_device.hpp"
#include "runtime/device/step_launch.hpp"
#include "runtime/device/virtual_device.hpp"
#include "runtime/model/hash_runner.hpp"

namespace deepinfer {

/// Completions by ticket; a ticket is the number of its step.
class step_inbox {
public:
  static void receive(void* user, ticket id, device_status status, const phase_times&) {
    auto& self = *static_cast<step_inbox*>(user);
    const std::lock_guard lock(self.mutex_);
    self.done_.emplace_back(id, status);
    self.changed_.notify_all();
  }
  device_status wait_for(ticket id) {
    std::unique_lock lock(mutex_);
    std::pair<ticket, device_status> found;
    changed_.wait(lock, [&] {
      const auto it =
        std::find_if(done_.begin(), done_.end(), [&](const auto& one) { return one.first == id; });
      if (it == done_.end()) return false;
      found = *it;
      return true;
    });
    return found.second;
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<ticket, device_status>> done_;
};

struct driven_sequence {
  seq_id id;
  slot_id slot;
  hash_script script;
  std::shared_ptr<sampling_params> params;
  std::int32_t most_outputs = 8;

  std::int32_t planned = 0;   ///< positions in launched steps
  std::int32_t yielding = 0;  ///< outputs launched, settled ones included
  std::int32_t blocks = 0;
  std::uint64_t newest_step = 0;  ///< that yielded for it; 0: none
  std::int32_t newest_row = 0;
  bool has_failed = false;
  std::vector<token_id> outputs;  ///< settled
  std::vector<token_logprobs> logprobs;

  std::int32_t prompt_tokens() const { return static_cast<std::int32_t>(script.prompt.size()); }
  bool is_launched_out() const { return has_failed || yielding >= most_outputs; }
};

struct driver_options {
  std::int32_t depth = 2;
  std::int32_t chunk = 3;  ///< most prompt tokens of a row
  std::uint32_t seed = 1;  ///< block order, who is left out of a step
  std::uint32_t skip_percent = 0;
  bool on_cpu = false;
  virtual_device_config timing = {};
  hash_model_config model = {};
};

class hash_driver {
public:
  explicit hash_driver(const driver_options& options)
    : options_(options),
      random_(options.seed),
      runner_(config_of(options), options.model) {
    for (std::int32_t block = 0; block < runner_.config().num_kv_blocks; ++block)
      free_blocks_.push_back(block_id{block});
    std::shuffle(free_blocks_.begin(), free_blocks_.end(), random_);
    if (options.on_cpu)
      device_ = std::make_unique<cpu_device>(cpu_device_config{2, 64});
    else
      device_ = std::make_unique<virtual_device>(options.timing);
  }

  static runner_config config_of(const driver_options& options) {
    runner_config config;
    config.depth = options.depth;
    config.max_num_seqs = 16;
    config.state_slots = 16;
    config.max_num_batched_tokens = 256;
    config.max_model_len = 512;
    config.num_kv_blocks = 128;
    config.block_size = 4;
    return config;
  }

  void add(hash_script script, sampling_params params, std::int32_t most_outputs) {
    driven_sequence one;
    const auto number = static_cast<std::int32_t>(sequences.size());
    one.id = seq_id{100 + static_cast<std::uint64_t>(number)};
    one.slot = slot_id{(number * 7 + 3) % 16};
    one.script = std::move(script);
    one.params = std::make_shared<sampling_params>(std::move(params));
    one.most_outputs = most_outputs;
    runner_.register_script(one.id, one.script);
    sequences.push_back(std::move(one));
  }

  /// The next step's plan; rows() == 0 when nothing can be launched.
  std::shared_ptr<step_plan> plan() {
    auto out = std::make_shared<step_plan>();
    out->clear();
    out->step = step_id{last_step_ + 1};
    out->kind = step_kind::mixed;
    for (auto& one : sequences) {
      if (one.is_launched_out()) continue;
      if (random_() % 100 < options_.skip_percent) continue;
      plan_row(one, *out);
    }
    return out;
  }

  /// Stages and launches a plan; false where the device refused it.
  bool launch(std::shared_ptr<step_plan> plan) {
    last_step_ = plan->step.value;
    for (std::int32_t row = 0; row < plan->rows(); ++row) mark_launched(*plan, row);
    auto work = runner_.stage(plan);
    const auto accepted =
      launch_step(*device_, work, ticket{last_step_}, step_inbox::receive, &inbox_);
    in_flight_.push_back({std::move(plan), std::move(work)});
    return accepted.has_value();
  }

  /// Waits for the oldest step and takes its results.
  step_result settle() {
    auto oldest = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (auto* clocked = dynamic_cast<virtual_device*>(device_.get())) clocked->run_until_idle();
    const auto status = inbox_.wait_for(ticket{oldest.plan->step.value});
    step_result result;
    runner_.collect(*oldest.work, result);
    if (status.code != errc::ok) result.code = status.code;
    for (std::int32_t row = 0; row < oldest.plan->rows(); ++row) {
      auto& one = find(oldest.plan->sequences[static_cast<std::size_t>(row)]);
      if (result.code != errc::ok) one.has_failed = true;
      if (one.has_failed) continue;
      const auto begin =
        static_cast<std::size_t>(result.token_begin[static_cast<std::size_t>(row)]);
      const auto end =
        static_cast<std::size_t>(result.token_begin[static_cast<std::size_t>(row) + 1]);
      for (auto i = begin; i < end; ++i) {
        one.outputs.push_back(result.tokens[i]);
        if (!result.logprobs.empty()) one.logprobs.push_back(result.logprobs[i]);
      }
    }
    return result;
  }

  /// Launches and settles until every sequence has its outputs.
  void run() {
    for (;;) {
      auto next = plan();
      const bool has_rows = next->rows() > 0;
      if (has_rows) launch(std::move(next));
      const bool is_full = in_flight_.size() >= static_cast<std::size_t>(options_.depth);
      const bool is_done = std::all_of(sequences.begin(), sequences.end(),
                                       [](const auto& one) { return one.is_launched_out(); });
      if (!in_flight_.empty() && (is_full || !has_rows)) settle();
      if (is_done && in_flight_.empty()) return;
    }
  }

  std::vector<token_id> expected(const driven_sequence& one) const {
    hash_sequence truth(options_.model, one.script, hash_sampling::of(*one.params));
    std::vector<token_id> out;
    for (std::int32_t k = 1; k <= one.most_outputs; ++k) out.push_back(truth.output(k));
    return out;
  }

  hash_runner& runner() { return runner_; }
  device& dev() { return *device_; }
  std::size_t in_flight() const { return in_flight_.size(); }
  device_work& newest_work() { return *in_flight_.back().work; }
  block_id take_block() {
    const auto block = free_blocks_.back();
    free_blocks_.pop_back();
    return block;
  }

  std::vector<driven_sequence> sequences;

private:
  struct launched {
    std::shared_ptr<step_plan> plan;
    std::shared_ptr<device_work> work;
  };

  driven_sequence& find(seq_id id) {
    return *std::find_if(sequences.begin(), sequences.end(),
                         [&](const auto& one) { return one.id == id; });
  }

  void plan_row(driven_sequence& one, step_plan& out) {
    const auto left = one.prompt_tokens() - one.planned;
    const auto width = left > 0 ? std::min(left, options_.chunk) : 1;
    const bool is_known =
      one.planned < one.prompt_tokens() + static_cast<std::int32_t>(one.outputs.size());
    out.sequences.push_back(one.id);
    out.epochs.push_back(0);
    out.slots.push_back(one.slot);
    out.kinds.push_back(left > 0 ? row_kind::prefill : row_kind::decode);
    out.widths.push_back(width);
    out.positions.push_back(one.planned);
    const auto yields = left > width ? 0 : 1;
    out.yields_max.push_back(yields);
    out.yields_min.push_back(yields);
    if (is_known) {
      out.sources.push_back(from_fresh);
      for (std::int32_t p = one.planned; p < one.planned + width; ++p)
        out.tokens.push_back(left > 0
                               ? one.script.prompt[static_cast<std::size_t>(p)]
                               : one.outputs[static_cast<std::size_t>(p - one.prompt_tokens())]);
    } else {
      out.sources.push_back(one.newest_step == last_step_ ? one.newest_row : from_slot);
    }
    out.token_begin.push_back(static_cast<std::int32_t>(out.tokens.size()));
    out.table_begin.push_back(one.blocks);
    const auto needed = (one.planned + width + 3) / 4;
    for (auto block = one.blocks; block < needed; ++block) out.blocks.push_back(take_block());
    out.block_begin.push_back(static_cast<std::int32_t>(out.blocks.size()));
    if (one.planned == 0)
      out.starts.push_back({one.slot, one.id, 0, one.prompt_tokens(), 0, one.params});
  }

  void mark_launched(const step_plan& plan, std::int32_t row) {
    const auto i = static_cast<std::size_t>(row);
    auto& one = find(plan.sequences[i]);
    one.planned += plan.widths[i];
    one.yielding += plan.yields_max[i];
    one.blocks = std::max(one.blocks, (one.planned + 3) / 4);
    if (plan.yields_max[i] == 0) return;
    one.newest_step = plan.step.value;
    one.newest_row = row;
  }

  driver_options options_;
  std::mt19937 random_;
  step_inbox inbox_;
  hash_runner runner_;
  std::vector<block_id> free_blocks_;
  std::deque<launched> in_flight_;
  std::uint64_t last_step_ = 0;
  std::unique_ptr<device> device_;  // last: its work ends before anything it touches
};

}  // namespace deepinfer
