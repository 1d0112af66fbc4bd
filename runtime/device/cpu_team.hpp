/// The kernel threads of a CPU device: one parallel region at a time, the caller's thread included.
///
/// Parts are taken one by one, so a slow thread delays nobody's other parts. A thread without work
/// spins for at most `spin_ns` before it sleeps; when there are more threads than cores it sleeps
/// at once, because a spinning thread would hold the core that another one needs. No lock is held
/// while a part runs. `run` inside a part runs its parts one after the other on that thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/stream.hpp"

namespace deepinfer {

/// How long a thread may spin before it sleeps: 20 us, or not at all when threads outnumber cores.
std::int64_t spin_ns_for(std::int32_t threads);

class cpu_team final : public thread_team {
public:
  /// `threads` >= 1, the caller's included.
  explicit cpu_team(std::int32_t threads);
  ~cpu_team() override;
  cpu_team(const cpu_team&) = delete;
  cpu_team& operator=(const cpu_team&) = delete;

  std::int32_t threads() const override { return static_cast<std::int32_t>(workers_.size()) + 1; }

  /// Callers take turns: one thread at a time. A part must not throw.
  void run(std::int32_t parts, task work, void* context) override;

private:
  // Which part is next and how many there are, in one word: whoever moves `next` owns that part,
  // and the region cannot end before the part has, so its fields may be read.
  struct alignas(64) shared_word {
    std::atomic<std::uint64_t> value{0};
  };

  bool take_part(std::int32_t& part, std::int32_t& parts);
  bool has_parts() const;
  void run_parts();
  void sleep_until_work();
  void work_until_stopped();

  std::int64_t spin_ns_;
  task work_ = nullptr;
  void* context_ = nullptr;
  shared_word region_;  // next part (high half), parts (low half)
  shared_word done_;    // parts that have ended
  shared_word sleepers_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> caller_sleeps_{false};
  std::mutex mutex_;
  std::condition_variable wake_workers_;
  std::condition_variable wake_caller_;
  void stop();

  std::vector<std::thread> workers_;
};

}  // namespace deepinfer
