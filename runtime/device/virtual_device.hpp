/// A device on a clock that somebody advances: scripted phase times, delays and faults.
///
/// Streams and events behave as on every device; what differs is time. A phase begins when its turn
/// comes, takes as long as the configuration says, and its work runs at its virtual end, on the
/// thread that advances the clock. Nothing runs inside launch_step but `begin` of a phase whose
/// turn it is. At equal times copy-in comes before compute, and compute before copy-out; so runs
/// with equal configuration and equal calls are equal. Not thread-safe. Source: scenarios 4.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/device/device.hpp"

namespace deepinfer {

/// `phase` takes `by_ns` longer in step `step`; 0: in every one.
struct phase_delay {
  std::uint64_t step = 0;
  step_phase phase = step_phase::forward;
  std::int64_t by_ns = 0;
};

enum class fault_kind : std::uint8_t {
  fail,  ///< the phase ends with device_failed, its work does not run
  hang,  ///< the phase never ends, and nothing after it on its stream
  lose,  ///< the work runs, but the step's completion never arrives
};

/// Strikes the first `times` runs of `phase` in steps from `step` on.
struct phase_fault {
  std::uint64_t step = 0;
  step_phase phase = step_phase::forward;
  fault_kind kind = fault_kind::fail;
  std::int32_t times = 1;
};

struct virtual_device_config {
  /// Nanoseconds of copy_in, forward, sample, sample_gated, copy_out.
  std::array<std::int64_t, step_phases> phase_ns{0, 2'000'000, 0, 0, 0};
  /// Asked when a phase begins, instead of phase_ns: its nanoseconds, >= 0. Null: phase_ns holds.
  std::function<std::int64_t(step_id, step_phase)> phase_time{};
  std::int64_t jitter_ns = 0;     ///< a phase takes up to this much longer
  std::uint64_t jitter_seed = 0;  ///< draws the jitter by step and phase; 0: none
  std::vector<phase_delay> delays{};
  std::vector<phase_fault> faults{};
  std::int32_t queue_entries = 64;
};

class virtual_device final : public device {
public:
  explicit virtual_device(virtual_device_config config = {});
  /// Lets everything end (the clock runs on), hanging work by abort().
  ~virtual_device() override;
  virtual_device(const virtual_device&) = delete;
  virtual_device& operator=(const virtual_device&) = delete;

  /// When the next phase or callback ends; none: idle, or everything hangs.
  std::optional<std::int64_t> next_event_ns() const;

  /// Runs what ends at or before `ns`, in order, then sets the clock to it. Never back.
  void advance_to(std::int64_t ns);

  /// Runs everything that will ever end; the clock stands at the last end.
  void run_until_idle();

  /// Whether nothing is enqueued; false when something hangs.
  bool is_idle() const;

  std::string_view name() const override { return "virtual"; }
  std::int64_t now_ns() const override { return now_ns_; }
  std::int32_t room(stream_kind stream) const override;
  void enqueue(stream_kind stream, const stream_task& task) override;
  event_mark record(stream_kind stream) override;
  void wait(stream_kind stream, event_mark mark) override;
  bool has_ended(event_mark mark) const override;
  void abort() override;
  result<arena> make_arena(memory_kind kind, std::size_t bytes) override;

private:
  static constexpr std::int64_t never = -1;

  struct entry {
    stream_task task;
    event_mark mark;  ///< of a wait
    bool is_wait = false;
  };
  struct stream_state {
    std::deque<entry> queue;  ///< the head has begun if has_begun
    bool has_begun = false;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;  ///< of the head, or never
    device_status status;     ///< the head ends with
    std::uint64_t enqueued = 0;
    std::uint64_t ended = 0;
  };

  stream_state& at(stream_kind kind) { return streams_[static_cast<std::size_t>(kind)]; }
  const stream_state& at(stream_kind kind) const {
    return streams_[static_cast<std::size_t>(kind)];
  }
  void put(stream_kind stream, const entry& what);
  void begin_heads();
  bool begin_head(stream_state& stream);
  std::int64_t duration_ns(const stream_task& task) const;
  phase_fault* fault_of(const stream_task& task);
  stream_state* next_to_end();
  void end_head(stream_state& stream);

  virtual_device_config config_;
  inline_team alone_;
  std::int64_t now_ns_ = 0;
  bool is_aborted_ = false;
  bool is_running_ = false;  ///< a task runs: nobody else may advance the clock
  std::array<stream_state, device_streams> streams_;
  std::vector<std::uint64_t> lost_steps_;  ///< whose completion will not be called
};

}  // namespace deepinfer
