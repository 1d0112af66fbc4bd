#include "runtime/device/virtual_device.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/check.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer {

virtual_device::virtual_device(virtual_device_config config) : config_(std::move(config)) {}

virtual_device::~virtual_device() {
  run_until_idle();
  if (is_idle()) return;
  abort();
  run_until_idle();
}

std::int32_t virtual_device::room(stream_kind stream) const {
  return config_.queue_entries - static_cast<std::int32_t>(at(stream).queue.size());
}

void virtual_device::put(stream_kind stream, const entry& what) {
  DI_CHECK(room(stream) > 0, "stream {} is full with {} entries", name_of(stream),
           at(stream).queue.size());
  at(stream).queue.push_back(what);
  begin_heads();
}

void virtual_device::enqueue(stream_kind stream, const stream_task& task) {
  ++at(stream).enqueued;
  put(stream, {task, {}, false});
}

event_mark virtual_device::record(stream_kind stream) {
  return {stream, at(stream).enqueued};
}

void virtual_device::wait(stream_kind stream, event_mark mark) {
  put(stream, {{}, mark, true});
}

bool virtual_device::has_ended(event_mark mark) const {
  return at(mark.stream).ended >= mark.generation;
}

void virtual_device::abort() {
  is_aborted_ = true;
  for (auto& stream : streams_) {
    if (!stream.has_begun || stream.end_ns != never) continue;
    stream.end_ns = now_ns_;
    stream.status = {errc::device_failed, true};
  }
  begin_heads();
}

result<arena> virtual_device::make_arena(memory_kind, std::size_t bytes) {
  return arena::map(bytes);
}

std::int64_t virtual_device::duration_ns(const stream_task& task) const {
  if (task.is_callback) return 0;
  auto ns = config_.phase_time ? config_.phase_time(task.step, task.phase)
                               : config_.phase_ns[static_cast<std::size_t>(task.phase)];
  DI_CHECK(ns >= 0, "step {} is to take {} ns in {}", task.step.value, ns, name_of(task.phase));
  for (const auto& delay : config_.delays)
    if (delay.phase == task.phase && (delay.step == 0 || delay.step == task.step.value))
      ns += delay.by_ns;
  if (config_.jitter_ns > 0 && config_.jitter_seed != 0) {
    const auto words = philox4x32({static_cast<std::uint32_t>(task.step.value),
                                   static_cast<std::uint32_t>(task.phase),
                                   static_cast<std::uint32_t>(task.step.value >> 32), 0},
                                  {static_cast<std::uint32_t>(config_.jitter_seed),
                                   static_cast<std::uint32_t>(config_.jitter_seed >> 32)});
    const auto draw = std::uint64_t{words[0]} << 32 | words[1];
    ns += static_cast<std::int64_t>(draw % (static_cast<std::uint64_t>(config_.jitter_ns) + 1));
  }
  return ns;
}

phase_fault* virtual_device::fault_of(const stream_task& task) {
  if (task.is_callback) return nullptr;
  for (auto& fault : config_.faults)
    if (fault.times > 0 && fault.phase == task.phase && task.step.value >= fault.step)
      return &fault;
  return nullptr;
}

// Waits that are satisfied leave; then a task begins. Whether anything changed.
bool virtual_device::begin_head(stream_state& stream) {
  if (stream.has_begun || stream.queue.empty()) return false;
  const auto& head = stream.queue.front();
  if (head.is_wait) {
    if (!has_ended(head.mark)) return false;
    stream.queue.pop_front();
    return true;
  }
  stream.has_begun = true;
  stream.begin_ns = stream.end_ns = now_ns_;
  stream.status = {};
  if (is_aborted_) {
    stream.status = {errc::device_failed, true};
    return true;
  }
  stream.end_ns += duration_ns(head.task);
  if (auto* fault = fault_of(head.task)) {
    --fault->times;
    if (fault->kind == fault_kind::fail) stream.status = {errc::device_failed, false};
    if (fault->kind == fault_kind::hang) stream.end_ns = never;
    if (fault->kind == fault_kind::lose) lost_steps_.push_back(head.task.step.value);
  }
  if (head.task.begin && stream.status.code == errc::ok) head.task.begin(head.task.user);
  return true;
}

void virtual_device::begin_heads() {
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (auto& stream : streams_) has_changed |= begin_head(stream);
  }
}

virtual_device::stream_state* virtual_device::next_to_end() {
  stream_state* next = nullptr;
  for (auto& stream : streams_)
    if (stream.has_begun && stream.end_ns != never && (!next || stream.end_ns < next->end_ns))
      next = &stream;
  return next;
}

void virtual_device::end_head(stream_state& stream) {
  DI_CHECK(!is_running_, "the clock is advanced by work that runs on it, at {} ns", now_ns_);
  is_running_ = true;
  now_ns_ = stream.end_ns;
  const auto task = stream.queue.front().task;
  task_context context;
  context.stream.team = &alone_;
  context.begin_ns = stream.begin_ns;
  context.status = stream.status;
  if (task.is_callback) {
    const auto lost = std::find(lost_steps_.begin(), lost_steps_.end(), task.step.value);
    context.is_lost = lost != lost_steps_.end();
    if (context.is_lost) lost_steps_.erase(lost);
  }
  // The head stays until its work has run: what the work enqueues begins after it.
  task.run(task.user, context);
  stream.queue.pop_front();
  stream.has_begun = false;
  ++stream.ended;
  is_running_ = false;
  begin_heads();
}

std::optional<std::int64_t> virtual_device::next_event_ns() const {
  std::optional<std::int64_t> next;
  for (const auto& stream : streams_)
    if (stream.has_begun && stream.end_ns != never && (!next || stream.end_ns < *next))
      next = stream.end_ns;
  return next;
}

void virtual_device::advance_to(std::int64_t ns) {
  DI_CHECK(ns >= now_ns_, "the clock stands at {} ns and cannot go back to {} ns", now_ns_, ns);
  for (auto* next = next_to_end(); next && next->end_ns <= ns; next = next_to_end())
    end_head(*next);
  now_ns_ = ns;
}

void virtual_device::run_until_idle() {
  for (auto* next = next_to_end(); next; next = next_to_end()) end_head(*next);
}

bool virtual_device::is_idle() const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [](const auto& stream) { return stream.queue.empty(); });
}

}  // namespace deepinfer
