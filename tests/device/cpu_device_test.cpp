#include <doctest/doctest.h>

#include <atomic>
#include <future>

#include "tests/device/device_support.hpp"

using namespace deepinfer;

namespace {

// A task that waits until the test opens its gate, then counts.
struct gated_task {
  std::promise<void> gate;
  std::shared_future<void> opened = gate.get_future().share();
  std::atomic<int> ran{0};

  static void run(void* user, const task_context&) {
    auto& self = *static_cast<gated_task*>(user);
    self.opened.wait();
    ++self.ran;
  }
  stream_task task() { return {run, this, step_id{1}, step_phase::forward, false}; }
};

struct counting_task {
  std::atomic<int> ran{0};
  static void run(void* user, const task_context&) { ++static_cast<counting_task*>(user)->ran; }
  stream_task task() { return {run, this, step_id{1}, step_phase::forward, false}; }
};

void await_end(const device& dev, event_mark mark) {
  while (!dev.has_ended(mark)) std::this_thread::yield();
}

}  // namespace

TEST_CASE("a wait is bound to the recording it was given, not to later ones [I24]") {
  gated_task first;
  gated_task second;
  counting_task after_first;
  cpu_device dev({1, 16});
  dev.enqueue(stream_kind::compute, first.task());
  const auto mark = dev.record(stream_kind::compute);
  dev.enqueue(stream_kind::compute, second.task());  // the "event" is recorded again
  const auto later = dev.record(stream_kind::compute);
  dev.wait(stream_kind::copy_out, mark);
  dev.enqueue(stream_kind::copy_out, after_first.task());
  const auto copied = dev.record(stream_kind::copy_out);
  CHECK_FALSE(dev.has_ended(mark));
  CHECK(after_first.ran == 0);
  first.gate.set_value();
  await_end(dev, copied);  // needs `first` alone
  CHECK(after_first.ran == 1);
  CHECK(dev.has_ended(mark));
  CHECK_FALSE(dev.has_ended(later));
  second.gate.set_value();
  await_end(dev, later);
  CHECK(second.ran == 1);
}

TEST_CASE("streams run beside each other: copies do not wait for the compute stream") {
  gated_task blocked;
  counting_task copy;
  cpu_device dev({1, 16});
  dev.enqueue(stream_kind::compute, blocked.task());
  dev.enqueue(stream_kind::copy_in, copy.task());
  await_end(dev, dev.record(stream_kind::copy_in));
  CHECK(copy.ran == 1);
  CHECK(blocked.ran == 0);
  blocked.gate.set_value();
}

TEST_CASE("a queue has a limit, and room counts down to it") {
  gated_task blocked;
  counting_task more;
  cpu_device dev({1, 4});
  dev.enqueue(stream_kind::compute, blocked.task());
  // The blocked task may or may not have left the queue yet; wait until it has.
  while (dev.room(stream_kind::compute) < 4) std::this_thread::yield();
  for (int room = 4; room > 0; --room) {
    CHECK(dev.room(stream_kind::compute) == room);
    dev.enqueue(stream_kind::compute, more.task());
  }
  CHECK(dev.room(stream_kind::compute) == 0);
  const auto refused = launch_step(dev, std::make_shared<logged_work>(1, nullptr), ticket{1},
                                   completions::receive, nullptr);
  CHECK_FALSE(refused);
  blocked.gate.set_value();
  await_end(dev, dev.record(stream_kind::compute));
  CHECK(more.ran == 4);
}

TEST_CASE("abort fails what has not begun, in order, and the completions still come") {
  completions done;
  event_log log;
  gated_task blocked;
  cpu_device dev({2, 64});
  dev.enqueue(stream_kind::copy_in, blocked.task());
  for (std::uint64_t step = 1; step <= 3; ++step)
    REQUIRE(launch_step(dev, std::make_shared<logged_work>(step, &log), ticket{step},
                        completions::receive, &done));
  dev.abort();
  blocked.gate.set_value();
  const auto records = done.wait_for(3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(records[i].id == ticket{i + 1});
    CHECK(records[i].status.code == errc::device_failed);
    CHECK(records[i].status.is_sticky);
  }
  CHECK(log.lines().empty());
}

TEST_CASE("a completion may launch the next step") {
  struct chain {
    device* dev;
    std::uint64_t left;
    std::promise<void> finished;
    static void next(void* user, ticket id, device_status, const phase_times&) {
      auto& self = *static_cast<chain*>(user);
      if (--self.left == 0) return self.finished.set_value();
      const auto launched =
        launch_step(*self.dev, std::make_shared<logged_work>(id.value + 1, nullptr),
                    ticket{id.value + 1}, next, user);
      CHECK(launched);
    }
  };
  chain steps{nullptr, 200, {}};
  cpu_device dev({1, 8});
  steps.dev = &dev;
  REQUIRE(
    launch_step(dev, std::make_shared<logged_work>(1, nullptr), ticket{1}, chain::next, &steps));
  steps.finished.get_future().wait();
  CHECK(steps.left == 0);
}

TEST_CASE("arenas are zeroed, aligned, and know what is left") {
  cpu_device dev({1, 8});
  auto memory = dev.make_arena(memory_kind::device, 1 << 20);
  REQUIRE(memory);
  const auto bytes = memory->take<std::uint8_t>(3);
  const auto words = memory->take<std::uint64_t>(100);
  CHECK(reinterpret_cast<std::uintptr_t>(words.data()) % arena::alignment == 0);
  CHECK(reinterpret_cast<const std::byte*>(words.data()) !=
        reinterpret_cast<const std::byte*>(bytes.data()));
  for (const auto word : words) CHECK(word == 0);
  CHECK(memory->used() == 64 + 800);
  arena moved = std::move(*memory);
  CHECK(moved.capacity() == 1 << 20);
  CHECK(memory->capacity() == 0);
  const auto absurd = dev.make_arena(memory_kind::device, std::size_t{1} << 62);
  REQUIRE_FALSE(absurd);
  CHECK(absurd.error().code == errc::no_device);
}
