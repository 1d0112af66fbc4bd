/// The rank of a simulation: virtual device, hash model, the time that host and device take, and
/// what is to be remembered of the core and the pool.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "actors/rank_hooks.hpp"
#include "actors/rank_supervisor.hpp"
#include "actors/simulate/simulation.hpp"
#include "runtime/device/virtual_device.hpp"
#include "runtime/model/hash_runner.hpp"

namespace deepinfer {

class simulated_rank final : public rank_watch, public host_pace {
public:
  /// Both outlive it.
  simulated_rank(const simulation_settings& settings, std::span<const workload_request> workload);

  rank_config config();
  virtual_device& device() { return device_; }
  const virtual_device& device() const { return device_; }
  const hash_runner& runner() const { return *runner_; }

  /// The request as the scheduler gets it; its outputs are known to the model from now on.
  sequence_request make_request(std::uint32_t request);
  void forget(seq_id sequence) { runner_->forget_script(sequence); }

  bool has_unsettled() const { return core_ && core_->in_flight() > 0; }
  /// While the rank is up.
  scheduler_stats stats() const { return core_->stats(); }
  const bubble_totals& bubbles() const { return accountant_->totals(); }

  // rank_watch
  void on_start(const scheduler_core& core, const bubble_accountant& accountant) override;
  void on_launch(const step_plan& plan, const scheduler_core& core) override;
  void on_outbox(const scheduler_outbox& box, const scheduler_core& core) override;
  void on_release(const kv_release& done, const kv_pool& pool) override;
  void on_core_gone() override;

  // host_pace
  std::chrono::nanoseconds plan(const step_plan& plan) override;
  std::chrono::nanoseconds settle(const step_result& result) override;

private:
  std::int64_t phase_ns(step_id step, step_phase phase) const;
  scheduler_config scheduler_settings() const;
  runner_config runner_settings() const;

  /// Forward time of a launched step, until it has run.
  struct timed_step {
    step_id step;
    std::int64_t forward_ns = 0;
  };

  const simulation_settings& settings_;
  std::span<const workload_request> workload_;
  std::int32_t max_model_len_ = 2;
  hash_model_config model_;
  std::array<timed_step, depth_limit + 1> timed_{};
  virtual_device device_;
  std::shared_ptr<hash_runner> runner_;
  const scheduler_core* core_ = nullptr;
  const bubble_accountant* accountant_ = nullptr;
  std::map<std::int32_t, std::int32_t> returned_;  ///< scratch: references by block
};

}  // namespace deepinfer
