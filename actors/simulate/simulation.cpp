#include "actors/simulate/simulation.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "actors/simulate/simulated_rank.hpp"
#include "actors/virtual_actors.hpp"
#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

/// Messages without a step of time after which a run is stuck.
constexpr std::int64_t most_messages = 1'000'000;

class simulation {
public:
  simulation(const simulation_settings& settings, std::span<const workload_request> workload);
  ~simulation();

  result<simulation_outcome> run();

  // What the clients are told.
  void take(const chunk_batch& batch);
  void rank_up(scheduler_actor scheduler) { scheduler_ = std::move(scheduler); }
  void rank_down(const std::string& why) { lost_ = why; }

private:
  result<void> run_to_end();
  result<void> settle_messages();
  bool step_time();
  void submit_due();
  bool is_over() const;
  tl::unexpected<error> broken(std::string_view what) const;

  std::span<const workload_request> workload_;
  simulation_outcome outcome_;
  simulated_rank rank_;
  virtual_actors actors_;
  device_doors doors_;
  rank_client_actor clients_;
  supervisor_actor supervisor_;
  scheduler_actor scheduler_;
  std::string lost_;
  std::size_t submitted_ = 0;  ///< requests, in order of arrival
  std::size_t finished_ = 0;
  std::int64_t now_ns_ = 0;
};

/// The clients, in the gateway's place.
rank_client_actor::behavior_type clients(rank_client_actor::pointer self, simulation* told) {
  return {
    [told](const chunk_batch& batch) { told->take(batch); },
    [told](rank_up_atom, const scheduler_actor& scheduler) { told->rank_up(scheduler); },
    [told](rank_down_atom, const std::string& why, bool) { told->rank_down(why); },
    [self](stop_atom) { self->quit(); },
  };
}

simulation::simulation(const simulation_settings& settings,
                       std::span<const workload_request> workload)
  : workload_(workload),
    rank_(settings, workload),
    actors_(0) {
  for (const auto& it : workload) outcome_.requests.push_back({.arrival_ns = it.arrival_ns});
  outcome_.begin_ns = outcome_.end_ns = workload.empty() ? 0 : workload.front().arrival_ns;
  clients_ = actors_.system().spawn(clients, this);
  supervisor_ = actors_.system().spawn(rank_supervisor, rank_.config(), clients_, &doors_);
}

simulation::~simulation() {
  tell_from_outside(supervisor_, stop_atom::value);
  actors_.run_all();
  tell_from_outside(clients_, stop_atom::value);
  scheduler_ = nullptr;
  actors_.run_all();
  // What the device still has runs to its end while its doors stand.
  rank_.device().abort();
  rank_.device().run_until_idle();
  supervisor_ = nullptr;
  clients_ = nullptr;
  actors_.run_all();
}

tl::unexpected<error> simulation::broken(std::string_view what) const {
  return fail(errc::internal, fmt::format("the simulation at {} us: {}", now_ns_ / 1000, what));
}

void simulation::take(const chunk_batch& batch) {
  for (const auto& chunk : batch.chunks) {
    auto& it = outcome_.requests.at(chunk.sequence.value - 1);
    if (!chunk.tokens.empty()) {
      if (it.first_token_ns < 0) it.first_token_ns = now_ns_;
      it.last_token_ns = now_ns_;
      it.tokens += static_cast<std::int32_t>(chunk.tokens.size());
    }
    if (!chunk.finish) continue;
    it.has_finished = true;
    it.has_failed = chunk.finish->reason != finish_reason::length;
    if (it.has_failed && outcome_.failure.empty()) outcome_.failure = chunk.finish->message;
    outcome_.end_ns = now_ns_;
    rank_.forget(chunk.sequence);
    ++finished_;
  }
}

void simulation::submit_due() {
  submit_batch batch;
  for (; submitted_ < workload_.size() && workload_[submitted_].arrival_ns <= now_ns_; ++submitted_)
    batch.push_back(rank_.make_request(static_cast<std::uint32_t>(submitted_)));
  if (!batch.empty()) tell_from_outside(scheduler_, std::move(batch));
}

result<void> simulation::settle_messages() {
  for (std::int64_t i = 0; actors_.run_one(); ++i) {
    if (!lost_.empty()) return broken("the rank is lost: " + lost_);
    if (i == most_messages)
      return broken(fmt::format("{} messages without a step of time", most_messages));
  }
  return {};
}

bool simulation::is_over() const {
  return finished_ == workload_.size() && rank_.device().is_idle() && !rank_.has_unsettled();
}

/// Goes on to the next thing that is due: device, arrivals, actors; false: there is none.
bool simulation::step_time() {
  std::optional<std::int64_t> next;
  const auto offer = [&next](std::optional<std::int64_t> ns) {
    if (ns && (!next || *ns < *next)) next = ns;
  };
  offer(rank_.device().next_event_ns());
  if (submitted_ < workload_.size()) offer(workload_[submitted_].arrival_ns);
  offer(actors_.next_timeout_ns());
  if (!next) return false;
  now_ns_ = std::max(now_ns_, *next);
  rank_.device().advance_to(now_ns_);
  submit_due();
  actors_.advance_to(now_ns_);
  return true;
}

result<void> simulation::run_to_end() {
  DI_TRY_VOID(settle_messages());
  if (!scheduler_) return broken("the rank has not come up");
  while (!is_over()) {
    if (!step_time()) return broken("requests are unfinished and nothing is due");
    DI_TRY_VOID(settle_messages());
  }
  return {};
}

result<simulation_outcome> simulation::run() {
  DI_TRY_VOID(run_to_end());
  outcome_.scheduler = rank_.stats();
  outcome_.device = rank_.bubbles();
  outcome_.messages = actors_.messages();
  const auto& canary = rank_.runner().canary();
  outcome_.canary_errors = canary.count();
  if (outcome_.canary_errors > 0) {
    const auto first = canary.errors().front();
    outcome_.canary_text = first.name + ": " + first.text;
  }
  return std::move(outcome_);
}

}  // namespace

result<void> check_simulation(const simulation_settings& s) {
  if (s.max_num_batched_tokens <= s.num_drafts)
    return fail(errc::bad_config,
                fmt::format("max-num-batched-tokens: found {}, expected more than num-drafts, {}: "
                            "a decode row has a token and its drafts",
                            s.max_num_batched_tokens, s.num_drafts));
  constexpr std::int64_t most_positions = 1 << 25;
  if (std::int64_t{s.num_kv_blocks} * s.block_size > most_positions)
    return fail(errc::bad_config,
                fmt::format("blocks: found {} of block-size {}, expected at most {} tokens in all",
                            s.num_kv_blocks, s.block_size, most_positions));
  return {};
}

result<simulation_outcome> simulate(const simulation_settings& settings,
                                    std::span<const workload_request> workload) {
  DI_TRY_VOID(check_simulation(settings));
  return simulation(settings, workload).run();
}

}  // namespace deepinfer
