/// The player: actors of the product on a virtual clock, with clients, operator and message faults
/// played around them.
///
/// One loop: let every message arrive; then time goes on to the next thing that is due: device
/// completions first, then the script, then messages that were put off. After each message the
/// script is asked whether an event that it waits for has happened.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/scenario/oracle.hpp"
#include "actors/scenario/outcome.hpp"
#include "actors/scenario/world_rank.hpp"
#include "actors/virtual_actors.hpp"
#include "runtime/core/token_credit.hpp"

namespace deepinfer {

/// The clients of one rank, in the gateway's place; and an order of the operator was answered.
using played_clients_actor = rank_client_actor::extend<note<wake_atom, std::uint64_t>>;

class scenario_player {
public:
  scenario_player(const scenario& of, const scenario_case& it, std::int32_t interleaving);
  ~scenario_player();

  run_outcome play();

  // What played actors are told.
  void take(std::int32_t rank, const chunk_batch& batch);
  void answered(std::uint64_t number);
  void rank_up(std::int32_t rank, scheduler_actor scheduler);
  void rank_down(std::int32_t rank, const std::string& why);

private:
  struct rank_seat {
    std::unique_ptr<played_rank> played;
    device_doors doors;
    rank_client_actor gateway;
    played_clients_actor clients;  ///< the same
    supervisor_actor supervisor;
    scheduler_actor scheduler;          ///< null while the rank is down
    std::vector<std::int32_t> waiting;  ///< requests for when it comes up again
  };
  /// A thing to be done at a time; equal times in the order they were noted.
  struct timed {
    std::int64_t us = 0;
    std::uint64_t order = 0;
    std::function<void()> act;
  };
  /// What a settled step gave a request.
  struct gained_part {
    std::int64_t step = 0;
    std::int32_t first_output = 0;
    std::vector<token_id> tokens;
    std::vector<float> logprobs;
  };
  struct request_state {
    std::int32_t rank = -1;  ///< it was sent to; -1: not submitted
    bool has_started = false;
    bool has_finished = false;  ///< its client has been told
    std::int32_t cached_tokens = 0;
    token_credit credit;
    std::vector<gained_part> waiting;  ///< one chunk, until there is credit
    std::optional<audit_final> final;  ///< the same, of its end
    std::int64_t final_step = 0;
    bool takes_at_once = true;       ///< every chunk that it is sent
    std::uint64_t consume_turn = 0;  ///< of the newest verb about it
  };

  // world_player.cpp
  void start_ranks();
  void stop_ranks();
  void run();
  bool step_time();
  void settle_messages();
  bool is_over() const;
  void at(std::int64_t us, std::function<void()> act);
  std::int64_t now_us() const { return now_ns_ / 1000; }
  void check_rules(bool at_end);
  void fail(std::string name, std::string seen, std::int32_t rank = -1);
  void ask_expectations_at_end();

  // world_clients.cpp
  void gain(std::int32_t request, const sequence_chunk& chunk, std::int64_t step);
  void offer(std::int32_t request);
  void send_out(std::int32_t request);
  void tell_hold(std::int32_t request);
  void take_chunks(std::int32_t request, std::int32_t chunks);
  void consume_every(std::int32_t request, const consume_verb& verb, std::uint64_t turn);
  void lose_rank(std::int32_t request);
  void abort(std::int32_t request);
  std::int64_t chunks_pending(std::int32_t rank) const;

  // world_script.cpp
  void note_script();
  void watch_events();
  void act(const scenario_action& action);
  void ask_expectation(std::size_t index);
  void submit(std::int32_t request);
  void send(std::int32_t request);
  void finish_unsent(std::int32_t request, scenario_finish finish, errc code);
  std::int32_t route(const scenario_request& request) const;
  void do_verb(const submit_verb& verb);
  void do_verb(const abort_verb& verb);
  void do_verb(const preempt_verb& verb);
  void do_verb(const pause_verb& verb);
  void do_verb(const resume_verb& verb);
  void do_verb(const drain_verb& verb);
  void do_verb(const flush_verb& verb);
  void do_verb(const kill_verb& verb);
  void do_verb(const consume_verb& verb);
  void do_verb(const deliver_verb& verb);
  void do_verb(const set_verb& verb);
  void do_verb(const rebalance_verb& verb);
  void order(std::int32_t rank, scheduler_order what, std::function<void()> when_done = {});
  void order_all(const scheduler_order& what, std::function<void()> when_done);

  const scenario& of_;
  const scenario_case& it_;
  std::int32_t interleaving_;
  std::vector<oracle_answer> answers_;  ///< prompts come from here
  run_outcome outcome_;
  virtual_actors actors_;
  std::vector<rank_seat> ranks_;
  std::vector<request_state> requests_;
  std::vector<deliver_verb> deliveries_;  ///< not used up
  std::map<std::pair<std::int64_t, std::uint64_t>, std::function<void()>> due_;
  std::vector<const scenario_action*> after_actions_;
  std::vector<std::size_t> after_asks_;
  std::size_t seen_entries_ = 0;
  std::uint64_t orders_ = 0;
  std::int64_t now_ns_ = 0;
  std::int32_t paces_ = 0;
  bool is_draining_ = false, has_drained_ = false;
  std::map<std::pair<std::int32_t, std::int64_t>, bool> wakes_;
  std::map<std::uint64_t, std::function<void()>> answers_due_;  ///< by order
};

/// Stands between the worker and its gate, and delays, doubles or swaps what passes as `deliveries`
/// say; what is used up is taken out.
device_gate_actor tap_gate(caf::actor_system& system, const device_gate_actor& gate,
                           std::vector<deliver_verb>* deliveries);

}  // namespace deepinfer
