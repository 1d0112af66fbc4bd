#include "runtime/device/cpu_team.hpp"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

#include "runtime/base/check.hpp"
#include "runtime/device/spin.hpp"

namespace deepinfer {

namespace {

thread_local bool is_in_part = false;

/// Cores the process may use, ascending; empty where the system doesn't say.
std::vector<int> usable_cores() {
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

/// A refusal is no error: the thread then runs where the system puts it.
void pin_to(int core) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
#else
  static_cast<void>(core);
#endif
}

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

cpu_team::cpu_team(std::int32_t threads, bool pins_threads) : spin_ns_(spin_ns_for(threads)) {
  DI_CHECK(threads >= 1, "a team of {} threads", threads);
  if (pins_threads) cores_ = usable_cores();
  if (static_cast<std::int32_t>(cores_.size()) != threads) cores_.clear();
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (std::int32_t i = 1; i < threads; ++i)
      workers_.emplace_back([this, i] {
        if (!cores_.empty()) pin_to(cores_[static_cast<std::size_t>(i)]);
        work_until_stopped();
      });
  } catch (...) {  // std::system_error: the caller's to report, once the started ones have ended
    stop();
    throw;
  }
}

cpu_team::~cpu_team() {
  stop();
}

void cpu_team::stop() {
  is_stopping_ = true;
  ++launched_.value;
  launched_.value.notify_all();
  for (auto& worker : workers_) worker.join();
}

void cpu_team::pin_caller() const {
  if (!cores_.empty()) pin_to(cores_.front());
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
    if (ended == static_cast<std::uint32_t>(parts) && caller_sleeps_) done_.value.notify_one();
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
  // A worker reads `launched_` before it looks for parts: it sleeps only while that holds.
  ++launched_.value;
  if (sleepers_ > 0) launched_.value.notify_all();
  run_parts();
  const auto all = static_cast<std::uint32_t>(parts);
  if (spin_until(spin_ns_, [&] { return done_.value.load() == all; })) return;
  caller_sleeps_ = true;
  for (auto ended = done_.value.load(); ended != all; ended = done_.value.load())
    done_.value.wait(ended);
  caller_sleeps_ = false;
}

void cpu_team::work_until_stopped() {
  while (!is_stopping_) {
    const auto seen = launched_.value.load();
    if (!spin_until(spin_ns_, [&] { return has_parts() || is_stopping_; })) {
      ++sleepers_;
      launched_.value.wait(seen);
      --sleepers_;
    }
    run_parts();
  }
}

}  // namespace deepinfer
