/// The CPU as a device: a thread and a bounded queue per stream, one team of kernel threads.
///
/// Tasks of the compute stream get the team; the copy streams work alone. Events are counters of
/// ended tasks (spin for a moment, then sleep; not at all when threads outnumber cores). Submitting
/// takes a short lock and allocates nothing; no lock is held while a task runs. The destructor
/// lets everything that was enqueued end, then joins.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "runtime/device/cpu_team.hpp"
#include "runtime/device/device.hpp"

namespace deepinfer {

struct cpu_device_config {
  std::int32_t threads = 0;         ///< of the kernel team; 0: one per core
  std::int32_t queue_entries = 64;  ///< tasks and waits a stream holds; a step takes at most 3
  bool pin_threads = false;         ///< see cpu_team
  work_meter* meter = nullptr;      ///< counts the work of the compute stream; outlives the device
};

class cpu_device final : public device {
public:
  explicit cpu_device(cpu_device_config config = {});
  ~cpu_device() override;

  std::string_view name() const override { return "cpu"; }
  std::int64_t now_ns() const override;
  std::int32_t room(stream_kind stream) const override;
  void enqueue(stream_kind stream, const stream_task& task) override;
  event_mark record(stream_kind stream) override;
  void wait(stream_kind stream, event_mark mark) override;
  bool has_ended(event_mark mark) const override;
  void abort() override;
  result<arena> make_arena(memory_kind kind, std::size_t bytes) override;

  std::int32_t threads() const { return team_.threads(); }

private:
  class stream_thread;

  stream_thread& at(stream_kind kind) { return *streams_[static_cast<std::size_t>(kind)]; }
  const stream_thread& at(stream_kind kind) const {
    return *streams_[static_cast<std::size_t>(kind)];
  }

  void stop();

  cpu_team team_;
  work_meter* const meter_;
  inline_team alone_;
  std::atomic<bool> is_aborted_{false};
  std::array<std::unique_ptr<stream_thread>, device_streams> streams_;
};

}  // namespace deepinfer
