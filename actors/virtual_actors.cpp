#include "actors/virtual_actors.hpp"

#include <algorithm>

#include <caf/scheduler/test_coordinator.hpp>

#include "actors/protocol.hpp"
#include "runtime/base/check.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer {

namespace {

/// Zero means "unset" to the actor library.
constexpr auto clock_start = std::chrono::hours(1);

class testing_config : public caf::actor_system_config {
public:
  testing_config() {
    set("scheduler.policy", caf::atom("testing"));
    set("logger.console", caf::atom("none"));
  }
};

/// Is the next message of the actor one that lets a scheduler's loop go on?
bool is_turn(caf::resumable* job) {
  auto* actor = dynamic_cast<caf::scheduled_actor*>(job);
  if (!actor) return false;
  const auto* next = actor->peek_at_next_mailbox_element();
  return next && next->content().match_elements<turn_atom>();
}

}  // namespace

struct virtual_actors::machinery {
  explicit machinery(std::uint64_t choice)
    : system(config),
      coordinator(dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler())),
      draws(choice == 0 ? 0 : split_mix64(choice)) {
    coordinator.clock().current_time += clock_start;
    start = coordinator.clock().current_time;
  }

  testing_config config;
  caf::actor_system system;
  caf::scheduler::test_coordinator& coordinator;
  std::uint64_t draws;
  caf::actor_clock::time_point start;
};

virtual_actors::virtual_actors(std::uint64_t choice) : it_(std::make_unique<machinery>(choice)) {}

virtual_actors::~virtual_actors() {
  run_all();
}

caf::actor_system& virtual_actors::system() {
  return it_->system;
}

bool virtual_actors::run_one() {
  auto& jobs = it_->coordinator.jobs;
  if (jobs.empty()) return false;
  if (it_->draws != 0) {
    it_->draws = split_mix64(it_->draws);
    const auto at = static_cast<std::ptrdiff_t>(it_->draws % jobs.size());
    std::rotate(jobs.begin(), jobs.begin() + at, jobs.begin() + at + 1);
  } else if (is_turn(jobs.front())) {
    const auto other =
      std::find_if(jobs.begin(), jobs.end(), [](auto* job) { return !is_turn(job); });
    if (other != jobs.end()) std::rotate(jobs.begin(), other, other + 1);
  }
  ++messages_;
  return it_->coordinator.try_run_once();
}

std::optional<std::int64_t> virtual_actors::next_timeout_ns() const {
  const auto& schedule = it_->coordinator.clock().schedule();
  if (schedule.empty()) return std::nullopt;
  const auto next = schedule.begin()->first - it_->start;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(next).count();
}

std::size_t virtual_actors::timeouts() const {
  return it_->coordinator.clock().schedule().size();
}

void virtual_actors::advance_to(std::int64_t ns) {
  auto& clock = it_->coordinator.clock();
  const auto target = it_->start + std::chrono::nanoseconds(ns);
  DI_CHECK(target >= clock.current_time, "the actors' clock cannot go back to {} ns", ns);
  clock.advance_time(target - clock.current_time);
}

}  // namespace deepinfer
