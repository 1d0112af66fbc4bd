#include "runtime/device/step_launch.hpp"

#include <fmt/core.h>

#include <array>
#include <utility>

#include "runtime/base/check.hpp"

namespace deepinfer {

// One launched step. Phases run one after the other (events order the streams), so its fields need
// no lock. Owned by the streams: the last task deletes it.
struct held_step {
  device* on;
  std::shared_ptr<device_work> work;
  ticket id;
  step_completion completion;
  void* user;
  device_status status;
  phase_times times;
};

namespace {

using launched_step = held_step;

template <step_phase Phase>
void run_phase(void* user, const task_context& context) {
  auto& step = *static_cast<launched_step*>(user);
  if (step.status.code != errc::ok) return;
  constexpr auto i = static_cast<std::size_t>(Phase);
  step.times.begin_ns[i] = context.begin_ns;
  step.status =
    context.status.code == errc::ok ? step.work->run(Phase, context.stream) : context.status;
  step.times.end_ns[i] = step.on->now_ns();
}

template <step_phase Phase>
void begin_phase(void* user) {
  auto& step = *static_cast<launched_step*>(user);
  if (step.status.code == errc::ok) step.work->begin(Phase);
}

void complete(void* user, const task_context& context) {
  const std::unique_ptr<launched_step> step(static_cast<launched_step*>(user));
  // An aborted device has a last word even where all phases had ended: it may not be trusted.
  if (step->status.code == errc::ok) step->status = context.status;
  if (!context.is_lost) step->completion(step->user, step->id, step->status, step->times);
}

using stream_entries = std::array<std::int32_t, device_streams>;
constexpr stream_entries entries_of_a_step = {1, 3, 3};
constexpr stream_entries entries_of_a_start = {1, 3, 0};
constexpr stream_entries entries_of_an_end = {0, 1, 3};

result<void> check_room(const device& on, step_id step, const stream_entries& needed) {
  for (std::size_t i = 0; i < device_streams; ++i) {
    const auto stream = static_cast<stream_kind>(i);
    if (on.room(stream) < needed[i])
      return fail(errc::overloaded,
                  fmt::format("step {}: stream {} of device {} has room for {} tasks, {} needed",
                              step.value, name_of(stream), on.name(), on.room(stream), needed[i]));
  }
  return {};
}

template <step_phase Phase>
void put_phase(launched_step* step) {
  step->on->enqueue(stream_of(Phase), stream_task{run_phase<Phase>, step, step->work->step(), Phase,
                                                  false, begin_phase<Phase>});
}

void put(launched_step* step, void (*run)(void*, const task_context&), step_phase phase,
         bool is_callback = false) {
  step->on->enqueue(stream_of(phase),
                    stream_task{run, step, step->work->step(), phase, is_callback});
}

void put_start(launched_step* step) {
  put_phase<step_phase::copy_in>(step);
  step->on->wait(stream_kind::compute, step->on->record(stream_kind::copy_in));
  put_phase<step_phase::forward>(step);
  put_phase<step_phase::sample>(step);
}

void put_end(launched_step* step) {
  auto* on = step->on;  // the completion may run, and delete the step, before this returns
  on->wait(stream_kind::copy_out, on->record(stream_kind::compute));
  put_phase<step_phase::copy_out>(step);
  put(step, complete, step_phase::copy_out, true);
}

}  // namespace

std::string_view name_of(stream_kind stream) {
  constexpr std::string_view names[] = {"copy_in", "compute", "copy_out"};
  return names[static_cast<std::size_t>(stream)];
}

std::string_view name_of(step_phase phase) {
  constexpr std::string_view names[] = {"copy_in", "forward", "sample", "sample_gated", "copy_out"};
  return names[static_cast<std::size_t>(phase)];
}

result<void> launch_step(device& on, std::shared_ptr<device_work> work, ticket id,
                         step_completion completion, void* user) {
  DI_CHECK(work != nullptr && completion != nullptr, "ticket {}: no work or nobody to tell",
           id.value);
  DI_TRY_VOID(check_room(on, work->step(), entries_of_a_step));
  auto* step = new launched_step{&on, std::move(work), id, completion, user, {}, {}};
  put_start(step);
  put_end(step);
  return {};
}

result<held_step*> launch_gated_step(device& on, std::shared_ptr<device_work> work, ticket id,
                                     step_completion completion, void* user) {
  DI_CHECK(work != nullptr && completion != nullptr, "ticket {}: no work or nobody to tell",
           id.value);
  DI_TRY_VOID(check_room(on, work->step(), entries_of_a_start));
  auto* step = new launched_step{&on, std::move(work), id, completion, user, {}, {}};
  put_start(step);
  return step;
}

result<void> finish_step(held_step* step) {
  DI_TRY_VOID(check_room(*step->on, step->work->step(), entries_of_an_end));
  put_phase<step_phase::sample_gated>(step);
  put_end(step);
  return {};
}

void abandon_step(held_step* step) {
  const auto fail_it = [](void* user, const task_context& context) {
    static_cast<launched_step*>(user)->status = {errc::device_failed, context.status.is_sticky,
                                                 "its gated rows were never sampled"};
  };
  put(step, fail_it, step_phase::sample_gated);
  put_end(step);
}

}  // namespace deepinfer
