#include "runtime/device/cpu_device.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/check.hpp"
#include "runtime/device/spin.hpp"

namespace deepinfer {

namespace {

std::int32_t team_size(std::int32_t wanted) {
  const auto cores = static_cast<std::int32_t>(std::thread::hardware_concurrency());
  return wanted > 0 ? wanted : std::max(1, cores);
}

}  // namespace

/// One in-order stream: a ring of entries, a thread that runs them, a counter of ended tasks.
class cpu_device::stream_thread {
public:
  stream_thread(cpu_device& owner, stream_kind kind, std::int32_t entries, std::int64_t spin_ns)
    : owner_(owner),
      kind_(kind),
      spin_ns_(spin_ns),
      ring_(static_cast<std::size_t>(entries)) {}

  void start() {
    thread_ = std::thread([this] { run(); });
  }

  /// The thread runs what is left in the queue, then ends.
  void request_stop() {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  std::int32_t room() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int32_t>(ring_.size() - size_);
  }

  void push(const stream_task& task) {
    const std::lock_guard lock(mutex_);
    put({task, {}, false});
    ++enqueued_;
  }
  void push_wait(event_mark mark) {
    const std::lock_guard lock(mutex_);
    put({{}, mark, true});
  }
  event_mark mark() const {
    const std::lock_guard lock(mutex_);
    return {kind_, enqueued_};
  }

  bool has_ended(std::uint64_t generation) const { return ended_.load() >= generation; }

  /// Blocks the calling stream until the first `generation` tasks of this one have ended.
  void await(std::uint64_t generation, std::int64_t spin_ns) {
    if (spin_until(spin_ns, [&] { return has_ended(generation); })) return;
    std::unique_lock lock(ended_mutex_);
    ++waiters_;
    ended_changed_.wait(lock, [&] { return has_ended(generation); });
    --waiters_;
  }

private:
  struct entry {
    stream_task task;
    event_mark mark;
    bool is_wait = false;
  };

  void put(const entry& what) {
    DI_CHECK(size_ < ring_.size(), "stream {} is full with {} entries", name_of(kind_), size_);
    DI_CHECK(!is_stopping_, "work for stream {} of a device that stops", name_of(kind_));
    ring_[(first_ + size_++) % ring_.size()] = what;
    changed_.notify_one();
  }

  // False: stopping and nothing left.
  bool take(entry& out) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return size_ > 0 || is_stopping_; });
    if (size_ == 0) return false;
    out = ring_[first_];
    first_ = (first_ + 1) % ring_.size();
    --size_;
    return true;
  }

  void run() {
    if (kind_ == stream_kind::compute) owner_.team_.pin_caller();
    entry next;
    while (take(next)) {
      if (next.is_wait) {
        owner_.at(next.mark.stream).await(next.mark.generation, spin_ns_);
        continue;
      }
      task_context context;
      const bool computes = kind_ == stream_kind::compute;
      context.stream.team = computes ? static_cast<thread_team*>(&owner_.team_) : &owner_.alone_;
      context.stream.meter = computes ? owner_.meter_ : nullptr;
      context.begin_ns = owner_.now_ns();
      if (owner_.is_aborted_) context.status = {errc::device_failed, true};
      next.task.run(next.task.user, context);
      ++ended_;
      if (waiters_ > 0) {
        // The lock closes the gap between a waiter's last look and its sleep.
        { const std::lock_guard lock(ended_mutex_); }
        ended_changed_.notify_all();
      }
    }
  }

  cpu_device& owner_;
  const stream_kind kind_;
  const std::int64_t spin_ns_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<entry> ring_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
  std::uint64_t enqueued_ = 0;
  bool is_stopping_ = false;

  std::atomic<std::uint64_t> ended_{0};
  std::atomic<std::int32_t> waiters_{0};
  std::mutex ended_mutex_;
  std::condition_variable ended_changed_;

  std::thread thread_;
};

cpu_device::cpu_device(cpu_device_config config)
  : team_(team_size(config.threads), config.pin_threads),
    meter_(config.meter) {
  DI_CHECK(config.queue_entries >= 3, "a step needs 3 entries of a stream, not {}",
           config.queue_entries);
  const auto spin_ns = spin_ns_for(team_.threads() + 1);
  for (std::size_t i = 0; i < device_streams; ++i)
    streams_[i] = std::make_unique<stream_thread>(*this, static_cast<stream_kind>(i),
                                                  config.queue_entries, spin_ns);
  try {
    for (auto& one : streams_) one->start();
  } catch (...) {  // std::system_error: the caller's to report, once the started ones have ended
    stop();
    throw;
  }
}

cpu_device::~cpu_device() {
  stop();
}

void cpu_device::stop() {
  for (auto& one : streams_) one->request_stop();
  for (auto& one : streams_) one->join();
}

std::int64_t cpu_device::now_ns() const {
  return steady_now_ns();
}

std::int32_t cpu_device::room(stream_kind stream) const {
  return at(stream).room();
}

void cpu_device::enqueue(stream_kind stream, const stream_task& task) {
  at(stream).push(task);
}

event_mark cpu_device::record(stream_kind stream) {
  return at(stream).mark();
}

void cpu_device::wait(stream_kind stream, event_mark mark) {
  at(stream).push_wait(mark);
}

bool cpu_device::has_ended(event_mark mark) const {
  return at(mark.stream).has_ended(mark.generation);
}

void cpu_device::abort() {
  is_aborted_ = true;
}

result<arena> cpu_device::make_arena(memory_kind, std::size_t bytes) {
  return arena::map(bytes);
}

}  // namespace deepinfer
