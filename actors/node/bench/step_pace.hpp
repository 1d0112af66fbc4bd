/// Host work of a chosen length for the step bench, and where the threads of an engine run.
///
/// `spinning_pace` burns wall-clock time on the scheduler's thread around its real plan and settle,
/// half in each, and notes how many tokens each settled step gave. Its calls belong to the
/// scheduler's thread; what it noted may be read when the engine has answered a pause.
/// `core_choice` moves the calling thread, and with it the threads that it starts, to one core for
/// its own lifetime. Times are in nanoseconds. Errors: no_device where the core is not to be had.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "actors/rank_hooks.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

class spinning_pace final : public host_pace {
public:
  /// Of a step, from its next half on.
  void set_loop_ns(std::int64_t of_a_step) { half_ns_ = of_a_step / 2; }

  std::chrono::nanoseconds plan(const step_plan& plan) override;
  std::chrono::nanoseconds settle(const step_result& result) override;

  /// Tokens by step since the last call.
  std::unordered_map<std::uint64_t, std::int32_t> take_tokens();

private:
  void spin() const;

  std::atomic<std::int64_t> half_ns_{0};
  std::unordered_map<std::uint64_t, std::int32_t> tokens_;
};

/// Cores that this process may use, ascending.
std::vector<int> cores_to_use();

class core_choice {
public:
  static result<core_choice> make(int core);

  core_choice(core_choice&& other) noexcept;
  core_choice& operator=(core_choice&&) = delete;
  ~core_choice();

private:
  explicit core_choice(std::vector<int> before) : before_(std::move(before)) {}

  std::vector<int> before_;  ///< empty: moved from
};

}  // namespace deepinfer
