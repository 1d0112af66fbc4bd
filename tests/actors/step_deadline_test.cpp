// Who waits for a step, and for how long: one timer for all steps of a rank, and an end to the wait
// when a part of the rank answers nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>

#include "actors/simulate/simulated_rank.hpp"
#include "actors/virtual_actors.hpp"

using namespace deepinfer;

namespace {

constexpr auto step_watchdog = std::chrono::seconds(1);

/// The clients of the rank.
struct desk {
  scheduler_actor scheduler;
  std::string lost;
  std::int64_t lost_ns = -1;
  std::size_t tokens = 0;
  bool has_finished = false;
};

rank_client_actor::behavior_type clients(rank_client_actor::pointer self, desk* on,
                                         const virtual_device* clock) {
  return {
    [on](const chunk_batch& batch) {
      for (const auto& chunk : batch.chunks) {
        on->tokens += chunk.tokens.size();
        on->has_finished |= chunk.finish.has_value();
      }
    },
    [on](rank_up_atom, const scheduler_actor& scheduler) { on->scheduler = scheduler; },
    [on, clock](rank_down_atom, const std::string& why, bool) {
      if (on->lost_ns < 0) on->lost_ns = clock->now_ns();
      on->lost = why;
    },
    [self](stop_atom) { self->quit(); },
  };
}

struct silent_gate_state {
  static inline const char* name = "silent_gate";
  pending<step_done> asked;
};

/// Takes steps and says nothing of them.
device_gate_actor::behavior_type
silent_gate(device_gate_actor::stateful_pointer<silent_gate_state> self) {
  return {
    [self](const submit_step& asked) {
      auto promise = self->make_response_promise<step_done>();
      self->state.asked.add(ticket{asked.work->step().value}, promise);
      return promise;
    },
    [](fired_atom, ticket, const device_status&, const phase_times&) {},
    [](recover_atom, step_id) { return step_done{}; },
    [](gate_atom, step_id) {},
    [](wake_atom) {},
  };
}

simulation_settings settings_of(std::int32_t depth) {
  simulation_settings out;
  out.depth = depth;
  return out;
}

workload_request one_request(std::int32_t tokens) {
  workload_request out;
  out.prompt_tokens = 4;
  out.output_tokens = tokens;
  return out;
}

class played_rank_of_actors {
public:
  played_rank_of_actors(std::int32_t depth, std::int32_t tokens, bool gate_is_silent)
    : settings_(settings_of(depth)),
      workload_{one_request(tokens)},
      rank_(settings_, workload_) {
    auto config = rank_.config();
    config.watchdog = step_watchdog;
    if (gate_is_silent)
      config.hooks.tap_gate = [](caf::actor_system& system, const device_gate_actor&) {
        return system.spawn(silent_gate);
      };
    auto& system = actors_.system();
    clients_ = system.spawn(clients, &desk_, &rank_.device());
    supervisor_ = system.spawn(rank_supervisor, config, clients_, &doors_);
    actors_.run_all();
    tell_from_outside(desk_.scheduler, submit_batch{rank_.make_request(0)});
    actors_.run_all();
  }
  ~played_rank_of_actors() {
    tell_from_outside(supervisor_, stop_atom::value);
    actors_.run_all();
    tell_from_outside(clients_, stop_atom::value);
    desk_.scheduler = nullptr;
    actors_.run_all();
    rank_.device().abort();
    rank_.device().run_until_idle();
    supervisor_ = nullptr;
    clients_ = nullptr;
    actors_.run_all();
  }

  /// Goes on to the next thing that is due; false: there is none.
  bool go_on() {
    const auto of_device = rank_.device().next_event_ns(), of_actors = actors_.next_timeout_ns();
    if (!of_device && !of_actors) return false;
    const auto next = std::min(of_device.value_or(INT64_MAX), of_actors.value_or(INT64_MAX));
    rank_.device().advance_to(std::max(next, rank_.device().now_ns()));
    actors_.advance_to(rank_.device().now_ns());
    actors_.run_all();
    return true;
  }

  const desk& told() const { return desk_; }
  std::size_t timeouts() const { return actors_.timeouts(); }

private:
  simulation_settings settings_;
  std::vector<workload_request> workload_;
  simulated_rank rank_;
  desk desk_;
  virtual_actors actors_{0};
  device_doors doors_;
  rank_client_actor clients_;
  supervisor_actor supervisor_;
};

}  // namespace

TEST_CASE("a gate that answers nothing costs the rank, four watchdogs after the first step") {
  for (const std::int32_t depth : {1, 2, 3}) {
    CAPTURE(depth);
    played_rank_of_actors rank(depth, 50, true);
    while (rank.told().lost.empty()) REQUIRE(rank.go_on());
    CHECK(rank.told().tokens == 0);
    // Plans take time on the host, and the first of them ends when the wait begins.
    const auto late_ns = rank.told().lost_ns - std::chrono::nanoseconds(4 * step_watchdog).count();
    CHECK(late_ns >= 0);
    CHECK(late_ns < 10'000'000);
  }
}

TEST_CASE("however many steps are launched, as many timers run: one of the gate, one of the "
          "scheduler, one of its work") {
  for (const std::int32_t depth : {1, 2, 3}) {
    CAPTURE(depth);
    played_rank_of_actors rank(depth, 2'000, false);
    std::size_t most = 0;
    while (!rank.told().has_finished) {
      REQUIRE(rank.go_on());
      most = std::max(most, rank.timeouts());
    }
    CHECK(rank.told().tokens == 2'000);
    CHECK(most <= 3);
    // And at rest nobody looks at the clock any more.
    while (rank.go_on()) {
    }
    CHECK(rank.timeouts() == 0);
  }
}
