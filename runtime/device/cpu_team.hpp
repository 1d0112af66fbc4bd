/// The kernel threads of a CPU device: one parallel region at a time, the caller's thread included.
///
/// Parts are taken one by one, so a slow thread delays nobody's other parts. A thread without work
/// spins for at most `spin_ns` before it sleeps on a futex; when there are more threads than cores
/// it sleeps at once, because a spinning thread would hold the core that another one needs. A team
/// at rest costs nothing. No lock is held while a part runs. `run` inside a part runs its parts one
/// after the other on that thread.
/// Pinning: thread i stays on the i-th core that the process may use. Only where the team has
/// exactly one thread for each of them: a smaller team is better placed by the system. Other
/// threads of the process are not pinned and take their share wherever they wake.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "runtime/base/stream.hpp"

namespace deepinfer {

/// How long a thread may spin before it sleeps: 20 us, or not at all when threads outnumber cores.
std::int64_t spin_ns_for(std::int32_t threads);

class cpu_team final : public thread_team {
public:
  /// `threads` >= 1, the caller's included.
  explicit cpu_team(std::int32_t threads, bool pins_threads = false);
  ~cpu_team() override;
  cpu_team(const cpu_team&) = delete;
  cpu_team& operator=(const cpu_team&) = delete;

  std::int32_t threads() const override { return static_cast<std::int32_t>(workers_.size()) + 1; }

  /// Pins the calling thread as the team's first, where the team pins. Called once, by the thread
  /// that will call `run`.
  void pin_caller() const;

  /// Callers take turns: one thread at a time. A part must not throw.
  void run(std::int32_t parts, task work, void* context) override;

private:
  // Which part is next and how many there are, in one word: whoever moves `next` owns that part,
  // and the region cannot end before the part has, so its fields may be read.
  struct alignas(64) shared_word {
    std::atomic<std::uint64_t> value{0};
  };
  // What threads sleep on: 32 bits, as a futex has.
  struct alignas(64) sleep_word {
    std::atomic<std::uint32_t> value{0};
  };

  void stop();
  bool take_part(std::int32_t& part, std::int32_t& parts);
  bool has_parts() const;
  void run_parts();
  void work_until_stopped();

  const std::int64_t spin_ns_;
  std::vector<int> cores_;  // one per thread; empty: nothing is pinned
  task work_ = nullptr;
  void* context_ = nullptr;
  shared_word region_;   // next part (high half), parts (low half)
  sleep_word launched_;  // regions so far: workers sleep on it
  sleep_word done_;      // parts that have ended: the caller sleeps on it
  std::atomic<std::int32_t> sleepers_{0};
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> caller_sleeps_{false};
  std::vector<std::thread> workers_;
};

}  // namespace deepinfer
