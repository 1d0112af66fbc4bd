#include "runtime/device/cpu_team.hpp"

#include "runtime/base/check.hpp"
#include "runtime/device/spin.hpp"

namespace deepinfer {

namespace {

thread_local bool is_in_part = false;

constexpr std::uint64_t word_of(std::int32_t next, std::int32_t parts) {
  return std::uint64_t{static_cast<std::uint32_t>(next)} << 32 | static_cast<std::uint32_t>(parts);
}
constexpr std::int32_t next_of(std::uint64_t word) {
  return static_cast<std::int32_t>(word >> 32);
}
constexpr std::int32_t parts_of(std::uint64_t word) {
  return static_cast<std::int32_t>(word & 0xffffffffu);
}

}  // namespace

std::int64_t spin_ns_for(std::int32_t threads) {
  const auto cores = static_cast<std::int32_t>(std::thread::hardware_concurrency());
  return threads <= cores ? 20'000 : 0;
}

cpu_team::cpu_team(std::int32_t threads) : spin_ns_(spin_ns_for(threads)) {
  DI_CHECK(threads >= 1, "a team of {} threads", threads);
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (std::int32_t i = 1; i < threads; ++i)
      workers_.emplace_back([this] { work_until_stopped(); });
  } catch (...) {  // std::system_error: the caller's to report, once the started ones have ended
    stop();
    throw;
  }
}

cpu_team::~cpu_team() {
  stop();
}

void cpu_team::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_workers_.notify_all();
  for (auto& worker : workers_) worker.join();
}

bool cpu_team::has_parts() const {
  const auto word = region_.value.load();
  return next_of(word) < parts_of(word);
}

bool cpu_team::take_part(std::int32_t& part, std::int32_t& parts) {
  auto word = region_.value.load();
  while (next_of(word) < parts_of(word)) {
    const auto after = word_of(next_of(word) + 1, parts_of(word));
    if (region_.value.compare_exchange_weak(word, after)) {
      part = next_of(word);
      parts = parts_of(word);
      return true;
    }
  }
  return false;
}

void cpu_team::run_parts() {
  std::int32_t part = 0;
  std::int32_t parts = 0;
  while (take_part(part, parts)) {
    is_in_part = true;
    work_(context_, part, parts);
    is_in_part = false;
    const auto ended = done_.value.fetch_add(1) + 1;
    if (ended == static_cast<std::uint64_t>(parts) && caller_sleeps_) {
      const std::lock_guard lock(mutex_);
      wake_caller_.notify_one();
    }
  }
}

void cpu_team::run(std::int32_t parts, task work, void* context) {
  DI_CHECK(parts >= 0, "{} parts", parts);
  if (parts == 1 || workers_.empty() || is_in_part) {
    for (std::int32_t part = 0; part < parts; ++part) work(context, part, parts);
    return;
  }
  if (parts == 0) return;
  work_ = work;
  context_ = context;
  done_.value = 0;
  region_.value = word_of(0, parts);
  if (sleepers_.value > 0) {
    // The lock closes the gap between a worker's last look and its sleep.
    { const std::lock_guard lock(mutex_); }
    wake_workers_.notify_all();
  }
  run_parts();
  const auto all = static_cast<std::uint64_t>(parts);
  const auto is_done = [&] { return done_.value.load() == all; };
  if (spin_until(spin_ns_, is_done)) return;
  std::unique_lock lock(mutex_);
  caller_sleeps_ = true;
  wake_caller_.wait(lock, is_done);
  caller_sleeps_ = false;
}

void cpu_team::sleep_until_work() {
  std::unique_lock lock(mutex_);
  ++sleepers_.value;
  wake_workers_.wait(lock, [&] { return has_parts() || is_stopping_; });
  --sleepers_.value;
}

void cpu_team::work_until_stopped() {
  while (!is_stopping_) {
    if (!spin_until(spin_ns_, [&] { return has_parts() || is_stopping_; })) sleep_until_work();
    run_parts();
  }
}

}  // namespace deepinfer
