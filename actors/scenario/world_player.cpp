#include "actors/scenario/world_player.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "actors/scenario/world.hpp"

namespace deepinfer {

namespace {

/// Messages without a step of time after which a run is stuck.
constexpr std::int64_t most_messages = 200'000;

/// The clients of one rank, in the gateway's place.
played_clients_actor::behavior_type played_clients(played_clients_actor::pointer self,
                                                   scenario_player* player, std::int32_t rank) {
  return {
    [player, rank](const chunk_batch& batch) { player->take(rank, batch); },
    [player, rank](rank_up_atom, const scheduler_actor& scheduler) {
      player->rank_up(rank, scheduler);
    },
    [player, rank](rank_down_atom, const std::string& why, bool) { player->rank_down(rank, why); },
    [self](stop_atom) { self->quit(); },
    [player](wake_atom, std::uint64_t number) { player->answered(number); },
  };
}

}  // namespace

run_outcome run_case(const scenario& of, const scenario_case& it, std::uint64_t,
                     std::int32_t interleaving) {
  return scenario_player(of, it, interleaving).play();
}

scenario_player::scenario_player(const scenario& of, const scenario_case& it,
                                 std::int32_t interleaving)
  : of_(of),
    it_(it),
    interleaving_(interleaving),
    answers_(ask_oracle(of, it)),
    outcome_{.log = audit_log(of.requests.size(), it.engine.ranks)},
    actors_(static_cast<std::uint64_t>(interleaving)),
    ranks_(static_cast<std::size_t>(it.engine.ranks)),
    requests_(of.requests.size()) {
  for (auto& request : requests_) request.credit = token_credit(it.engine.client_credit);
}

scenario_player::~scenario_player() = default;

run_outcome scenario_player::play() {
  start_ranks();
  note_script();
  run();
  if (outcome_.violations.empty()) {
    ask_expectations_at_end();
    check_rules(true);
  }
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].rank < 0) continue;
    const auto& runner = ranks_[static_cast<std::size_t>(requests_[i].rank)].played->runner();
    const auto request = static_cast<std::int32_t>(i);
    outcome_.log.written(request, runner.written_end(sequence_of(request)));
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    outcome_.log.routed(static_cast<std::int32_t>(rank),
                        static_cast<std::int64_t>(ranks_[rank].played->runner().routed_rows()));
  for (const auto& seat : ranks_) {
    const auto steps = seat.played->traces();
    outcome_.trace.insert(outcome_.trace.end(), steps.begin(), steps.end());
  }
  outcome_.end_us = now_us();
  stop_ranks();
  return std::move(outcome_);
}

void scenario_player::start_ranks() {
  for (std::int32_t rank = 0; rank < it_.engine.ranks; ++rank) {
    auto& seat = ranks_[static_cast<std::size_t>(rank)];
    const auto wake_at = [this](std::int32_t of, std::int64_t us) {
      if (std::exchange(wakes_[{of, us}], true)) return;
      at(us, [this, of] {
        const auto& scheduler = ranks_[static_cast<std::size_t>(of)].scheduler;
        if (scheduler) tell_from_outside(scheduler, wake_atom::value);
      });
    };
    seat.played =
      std::make_unique<played_rank>(of_, it_, rank, interleaving_, outcome_.log, wake_at);
    seat.clients = actors_.system().spawn(played_clients, this, rank);
    seat.gateway = seat.clients;
    auto config = seat.played->config();
    config.max_restarts = 1000;
    const bool has_deliveries =
      std::any_of(of_.actions.begin(), of_.actions.end(), [](const scenario_action& action) {
        return std::holds_alternative<deliver_verb>(action.verb);
      });
    if (has_deliveries)
      config.hooks.tap_gate = [this](caf::actor_system& system, const device_gate_actor& gate) {
        return tap_gate(system, gate, &deliveries_);
      };
    seat.supervisor =
      actors_.system().spawn(rank_supervisor, std::move(config), seat.gateway, &seat.doors);
  }
  settle_messages();
}

void scenario_player::stop_ranks() {
  for (auto& seat : ranks_) tell_from_outside(seat.supervisor, stop_atom::value);
  actors_.run_all();
  for (auto& seat : ranks_) {
    tell_from_outside(seat.gateway, stop_atom::value);
    seat.scheduler = nullptr;
  }
  actors_.run_all();
  // What the device still had runs to its end while its doors stand.
  for (auto& seat : ranks_) {
    seat.played->device().abort();
    seat.played->device().run_until_idle();
    seat.supervisor = nullptr;
    seat.gateway = nullptr;
    seat.clients = nullptr;
  }
  actors_.run_all();
}

void scenario_player::at(std::int64_t us, std::function<void()> act) {
  due_.emplace(std::pair{std::max(us, now_us()), ++orders_}, std::move(act));
}

void scenario_player::settle_messages() {
  for (std::int64_t i = 0; actors_.run_one(); ++i) {
    watch_events();
    if (i < most_messages) continue;
    return fail("stuck", fmt::format("{} messages without a step of time", most_messages));
  }
  watch_events();
}

bool scenario_player::is_over() const {
  if (!due_.empty()) return false;
  for (const auto& it : requests_)
    if (it.rank >= 0 && !it.has_finished) return false;
  for (const auto& seat : ranks_)
    if (!seat.played->device().is_idle() || seat.played->has_unsettled()) return false;
  return true;
}

/// Goes on to the next thing that is due; false: there is none.
bool scenario_player::step_time() {
  std::optional<std::int64_t> next;
  const auto offer = [&next](std::optional<std::int64_t> ns) {
    if (ns && (!next || *ns < *next)) next = ns;
  };
  for (const auto& seat : ranks_) offer(seat.played->device().next_event_ns());
  if (!due_.empty()) offer(due_.begin()->first.first * 1000);
  offer(actors_.next_timeout_ns());
  if (!next || *next > of_.limit_us * 1000) return false;
  now_ns_ = std::max(now_ns_, *next);
  for (auto& seat : ranks_) seat.played->device().advance_to(now_ns_);
  while (!due_.empty() && due_.begin()->first.first <= now_us() && outcome_.violations.empty()) {
    const auto node = due_.extract(due_.begin());
    node.mapped()();
  }
  actors_.advance_to(now_ns_);
  return true;
}

void scenario_player::run() {
  settle_messages();
  check_rules(false);
  while (outcome_.violations.empty() && !is_over()) {
    if (!step_time()) {
      const bool waits = std::any_of(requests_.begin(), requests_.end(), [](const auto& it) {
        return it.rank >= 0 && !it.has_finished;
      });
      if (waits) fail("stuck", "requests are unfinished and nothing is due");
      return;
    }
    settle_messages();
    check_rules(false);
  }
}

void scenario_player::fail(std::string name, std::string seen, std::int32_t rank) {
  violation it;
  it.name = std::move(name);
  it.seen = std::move(seen);
  it.us = now_us();
  it.rank = rank;
  outcome_.violations.push_back(std::move(it));
}

void scenario_player::check_rules(bool at_end) {
  for (std::size_t rank = 0; rank < ranks_.size() && outcome_.violations.empty(); ++rank)
    if (auto broken = ranks_[rank].played->broken_rule(at_end))
      fail(std::move(broken->first), std::move(broken->second), static_cast<std::int32_t>(rank));
}

void scenario_player::take(std::int32_t, const chunk_batch& batch) {
  for (const auto& start : batch.started) {
    auto& request = requests_[static_cast<std::size_t>(request_of(start.sequence))];
    request.has_started = true;
    request.cached_tokens = start.cached_tokens;
  }
  for (const auto& chunk : batch.chunks)
    gain(request_of(chunk.sequence), chunk, static_cast<std::int64_t>(batch.step.value));
}

void scenario_player::rank_up(std::int32_t rank, scheduler_actor scheduler) {
  auto& seat = ranks_[static_cast<std::size_t>(rank)];
  seat.scheduler = std::move(scheduler);
  for (const auto request : std::exchange(seat.waiting, {})) send(request);
}

// Started requests end with one error; who waited goes on when the rank has come up again.
void scenario_player::rank_down(std::int32_t rank, const std::string&) {
  auto& seat = ranks_[static_cast<std::size_t>(rank)];
  seat.scheduler = nullptr;
  outcome_.log.restarted(now_us(), rank);
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    auto& it = requests_[i];
    if (it.rank != rank || it.has_finished) continue;
    if (it.has_started)
      lose_rank(static_cast<std::int32_t>(i));
    else
      seat.waiting.push_back(static_cast<std::int32_t>(i));
  }
}

void scenario_player::ask_expectations_at_end() {
  for (std::size_t i = 0; i < of_.expectations.size(); ++i) {
    const auto& it = of_.expectations[i];
    const bool is_at_end = !it.when.at_us && !it.when.after;
    if (is_at_end && std::holds_alternative<metric_form>(it.form)) ask_expectation(i);
  }
}

}  // namespace deepinfer
