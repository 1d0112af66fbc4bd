#include "actors/node/bench/step_pace.hpp"

#include <utility>

#include <fmt/format.h>

#if defined(__linux__)
#include <sched.h>
#endif

#include "runtime/device/spin.hpp"

namespace deepinfer {
namespace {

/// Whether the calling thread runs on nothing but `cores` from now on.
bool move_to(const std::vector<int>& cores) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const auto core : cores) CPU_SET(static_cast<std::size_t>(core), &set);
  return ::sched_setaffinity(0, sizeof(set), &set) == 0;
#else
  static_cast<void>(cores);
  return false;
#endif
}

}  // namespace

std::chrono::nanoseconds spinning_pace::plan(const step_plan&) {
  spin();
  return {};
}

std::chrono::nanoseconds spinning_pace::settle(const step_result& result) {
  tokens_[result.step.value] = static_cast<std::int32_t>(result.tokens.size());
  spin();
  return {};
}

std::unordered_map<std::uint64_t, std::int32_t> spinning_pace::take_tokens() {
  return std::exchange(tokens_, {});
}

void spinning_pace::spin() const {
  const auto length = half_ns_.load();
  if (length <= 0) return;
  const auto end = steady_now_ns() + length;
  while (steady_now_ns() < end) cpu_relax();
}

std::vector<int> cores_to_use() {
  std::vector<int> cores;
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
#endif
  return cores;
}

result<core_choice> core_choice::make(int core) {
  auto before = cores_to_use();
  if (before.empty() || !move_to({core}))
    return fail(errc::no_device, fmt::format("threads can't be kept on core {}", core));
  return core_choice(std::move(before));
}

core_choice::core_choice(core_choice&& other) noexcept
  : before_(std::exchange(other.before_, {})) {}

core_choice::~core_choice() {
  if (!before_.empty()) static_cast<void>(move_to(before_));
}

}  // namespace deepinfer
