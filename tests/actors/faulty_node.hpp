/// A hash node whose device does wrong once, or is held for as long as a test wants.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/actors/hash_node.hpp"

namespace deepinfer {

/// A gate that device work can be held at.
class barrier {
public:
  void hold() {
    std::unique_lock lock(mutex_);
    has_arrived_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
  }
  void wait_for_arrival() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_arrived_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_arrived_ = false;
  bool is_open_ = false;
};

/// What happens to the forward of one step.
struct step_fault {
  std::uint64_t step = 0;
  std::shared_ptr<barrier> held_at{};  ///< null: it fails
  bool is_sticky = false;
  row_error of_row = row_error::none;  ///< instead: the step's first row gives no id
};

class faulty_work final : public device_work {
public:
  faulty_work(std::shared_ptr<device_work> inner, step_fault fault)
    : inner_(std::move(inner)),
      fault_(std::move(fault)) {}

  step_id step() const override { return inner_->step(); }
  device_status run(step_phase phase, const stream_ref& stream) override {
    const bool is_faulty = fault_.of_row == row_error::none && step().value == fault_.step;
    if (phase == step_phase::forward && is_faulty) {
      if (!fault_.held_at) return {errc::device_failed, fault_.is_sticky};
      fault_.held_at->hold();
    }
    return inner_->run(phase, stream);
  }
  const device_work& inner() const { return *inner_; }

private:
  std::shared_ptr<device_work> inner_;
  step_fault fault_;
};

/// The hash runner, with one fault in its first life.
class faulty_runner final : public step_runner {
public:
  faulty_runner(std::shared_ptr<hash_runner> inner, step_fault fault)
    : inner_(std::move(inner)),
      fault_(std::move(fault)) {}

  const runner_config& config() const override { return inner_->config(); }
  std::int32_t vocab_size() const override { return inner_->vocab_size(); }
  std::shared_ptr<device_work> stage(std::shared_ptr<const step_plan> plan) override {
    return std::make_shared<faulty_work>(inner_->stage(std::move(plan)), fault_);
  }
  void collect(const device_work& work, step_result& out) override {
    inner_->collect(static_cast<const faulty_work&>(work).inner(), out);
    if (fault_.of_row != row_error::none && out.step.value == fault_.step) spoil_first_row(out);
  }
  void set_masks(device_work& work, std::shared_ptr<const sample_gate> masks) override {
    inner_->set_masks(const_cast<device_work&>(static_cast<faulty_work&>(work).inner()),
                      std::move(masks));
  }
  void reset() override {
    fault_ = {};
    inner_->reset();
  }
  void poison(std::span<const block_id> blocks, std::span<const slot_id> slots) override {
    inner_->poison(blocks, slots);
  }

private:
  /// As a model's runner tells it: why, and no token.
  void spoil_first_row(step_result& out) const {
    const auto given = out.token_begin[1];
    out.tokens.erase(out.tokens.begin(), out.tokens.begin() + given);
    for (std::size_t i = 1; i < out.token_begin.size(); ++i) out.token_begin[i] -= given;
    out.row_errors.assign(out.sequences.size(), row_error::none);
    out.row_errors[0] = fault_.of_row;
  }

  std::shared_ptr<hash_runner> inner_;
  step_fault fault_;
};

/// An endless node with this fault.
inline hash_node_options with_fault(step_fault fault) {
  auto options = endless();
  options.wrap = [fault](std::shared_ptr<hash_runner> inner) {
    return std::make_shared<faulty_runner>(std::move(inner), fault);
  };
  return options;
}

}  // namespace deepinfer
