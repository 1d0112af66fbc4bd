#include "runtime/device/step_launch.hpp"

#include <fmt/core.h>

#include <array>
#include <utility>

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

// One launched step. Phases run one after the other (events order the streams), so its fields need
// no lock. Owned by the streams: the last task deletes it.
struct launched_step {
  device* on;
  std::shared_ptr<device_work> work;
  ticket id;
  step_completion completion;
  void* user;
  device_status status;
  phase_times times;
};

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

void complete(void* user, const task_context& context) {
  const std::unique_ptr<launched_step> step(static_cast<launched_step*>(user));
  // An aborted device has a last word even where all phases had ended: it may not be trusted.
  if (step->status.code == errc::ok) step->status = context.status;
  if (!context.is_lost) step->completion(step->user, step->id, step->status, step->times);
}

constexpr std::array<std::int32_t, device_streams> entries_of_a_step = {1, 3, 3};

}  // namespace

std::string_view name_of(stream_kind stream) {
  constexpr std::string_view names[] = {"copy_in", "compute", "copy_out"};
  return names[static_cast<std::size_t>(stream)];
}

std::string_view name_of(step_phase phase) {
  constexpr std::string_view names[] = {"copy_in", "forward", "sample", "copy_out"};
  return names[static_cast<std::size_t>(phase)];
}

result<void> launch_step(device& on, std::shared_ptr<device_work> work, ticket id,
                         step_completion completion, void* user) {
  DI_CHECK(work != nullptr && completion != nullptr, "ticket {}: no work or nobody to tell",
           id.value);
  for (std::size_t i = 0; i < device_streams; ++i) {
    const auto stream = static_cast<stream_kind>(i);
    if (on.room(stream) < entries_of_a_step[i])
      return fail(errc::overloaded,
                  fmt::format("step {}: stream {} of device {} has room for {} tasks, {} needed",
                              work->step().value, name_of(stream), on.name(), on.room(stream),
                              entries_of_a_step[i]));
  }
  const auto step = work->step();
  auto* launched = new launched_step{&on, std::move(work), id, completion, user, {}, {}};
  const auto put = [&](void (*run)(void*, const task_context&), step_phase phase,
                       bool is_callback = false) {
    on.enqueue(stream_of(phase), stream_task{run, launched, step, phase, is_callback});
  };
  put(run_phase<step_phase::copy_in>, step_phase::copy_in);
  on.wait(stream_kind::compute, on.record(stream_kind::copy_in));
  put(run_phase<step_phase::forward>, step_phase::forward);
  put(run_phase<step_phase::sample>, step_phase::sample);
  on.wait(stream_kind::copy_out, on.record(stream_kind::compute));
  put(run_phase<step_phase::copy_out>, step_phase::copy_out);
  put(complete, step_phase::copy_out, true);
  return {};
}

}  // namespace deepinfer
