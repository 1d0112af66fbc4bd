/// One rank of a played scenario: its virtual device, its hash model, what it is told about time,
/// and the watch that writes the audit log.
///
/// Sequence n of the engine is request n - 1 of the scenario. Everything runs on one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "actors/rank_hooks.hpp"
#include "actors/rank_supervisor.hpp"
#include "actors/scenario/audit.hpp"
#include "actors/scenario/publish_watch.hpp"
#include "config/scenario.hpp"
#include "config/scenario_cases.hpp"
#include "runtime/device/virtual_device.hpp"
#include "runtime/model/hash_runner.hpp"

namespace deepinfer {

inline seq_id sequence_of(std::int32_t request) {
  return {static_cast<std::uint64_t>(request) + 1};
}
inline std::int32_t request_of(seq_id sequence) {
  return static_cast<std::int32_t>(sequence.value) - 1;
}

class played_rank final : public rank_watch, public host_pace, public grammar_source {
public:
  /// `wake_at(us)`: somebody shall wake the rank's scheduler then.
  played_rank(const scenario& of, const scenario_case& it, std::int32_t rank,
              std::int32_t interleaving, audit_log& log,
              std::function<void(std::int32_t, std::int64_t)> wake_at);
  ~played_rank() override;

  rank_config config();
  virtual_device& device() { return device_; }
  hash_runner& runner() { return *runner_; }
  std::int64_t now_us() const { return device_.now_ns() / 1000; }

  /// The value of a metric of section 8; none: it is not one of this rank's. Seconds are given in
  /// microseconds.
  std::optional<std::int64_t> metric(std::string_view name) const;

  /// What is broken while nothing is on its way between actors, as "name: what".
  std::optional<std::pair<std::string, std::string>> broken_rule(bool at_end);
  bool is_up() const { return core_ != nullptr; }
  /// Of every step that has settled, also before the rank was lost.
  std::span<const step_trace> traces() const { return traces_; }
  bool has_unsettled() const { return core_ && core_->in_flight() > 0; }
  void set_policy(const scenario_policy& policy, const scenario_vote& vote);
  scheduler_policy policy() const { return policy_; }
  std::int64_t submitted_at(std::int32_t request) const { return submitted_us_.at(request); }
  void note_submit(std::int32_t request) { submitted_us_[request] = now_us(); }

  // rank_watch
  void on_start(const scheduler_core& core, const bubble_accountant& accountant) override;
  void on_launch(const step_plan& plan, const scheduler_core& core) override;
  void on_settle(const step_result& done, const scheduler_core& core) override;
  void on_host_wait(step_id step) override;
  void on_outbox(const scheduler_outbox& box, const scheduler_core& core) override;
  void on_release(const kv_release& done, const kv_pool& pool) override;
  void on_pool(const kv_pool& pool) override;
  void on_depth(std::int32_t depth) override { log_.depth_set(now_us(), depth); }
  void on_flushed() override { log_.happened(now_us(), scenario_event_kind::flushed); }
  void on_traced(const step_trace& step) override;
  void on_suspect(step_id step) override { suspects_.insert(step); }
  void on_proven(step_id step) override { suspects_.erase(step); }
  void on_core_gone() override;
  void on_pool_gone() override { pool_ = nullptr; }

  // host_pace
  std::chrono::nanoseconds plan(const step_plan& plan) override;
  std::chrono::nanoseconds settle(const step_result& result) override;

  // grammar_source
  std::unique_ptr<grammar_matcher> poll(seq_id sequence, const sampling_params& params,
                                        std::string& error) override;

private:
  using broken = std::optional<std::pair<std::string, std::string>>;

  void log_preempted(const scheduler_outbox& box);
  broken broken_books() const;
  broken broken_sleep() const;
  broken broken_conservation(const scheduler_stats& stats);
  std::int64_t host_ns(scenario_phase phase, std::int64_t us, step_id step);
  void warm_up();
  std::int32_t requests() const { return static_cast<std::int32_t>(of_.requests.size()); }
  std::optional<std::int64_t> core_metric(std::string_view name) const;
  std::optional<std::int64_t> pool_metric(std::string_view name) const;

  const scenario& of_;
  const scenario_case& it_;
  std::int32_t rank_;
  std::uint64_t interleaving_;
  audit_log& log_;
  std::function<void(std::int32_t, std::int64_t)> wake_at_;
  virtual_device device_;
  std::shared_ptr<hash_runner> runner_;
  std::unique_ptr<token_texts> texts_;
  scheduler_policy policy_;
  const scheduler_core* core_ = nullptr;
  const bubble_accountant* accountant_ = nullptr;
  const kv_pool* pool_ = nullptr;
  std::map<std::int32_t, std::int64_t> submitted_us_;   ///< by request
  std::map<std::int32_t, std::vector<block_id>> held_;  ///< by request: in its table, or leased
  std::size_t preempted_logged_ = 0;                    ///< of what the core has gathered
  std::int64_t busy_until_ns_ = 0;                      ///< the host, with planning or settling
  bool has_suspect_ = false;  ///< a step timed out: what it may touch is in quarantine
  std::int64_t last_decode_us_ = -1, decode_gap_us_ = 0;
  std::set<step_id> suspects_;                   ///< nothing is launched until they are proven
  std::map<step_id, std::int64_t> launched_ns_;  ///< of the steps in flight
  bool may_lose_ = false;  ///< a completion, or a step on its way to the device
  publish_watch names_;
  std::vector<step_trace> traces_;
};

/// The scheduler's settings of a case, for one rank.
scheduler_config scheduler_config_of(const scenario& of, const scenario_case& it,
                                     std::int32_t rank);
scheduler_policy policy_of(const scenario_policy& policy, const scenario_vote& vote);

}  // namespace deepinfer
