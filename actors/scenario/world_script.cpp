// The script: clients submit and abort, an operator gives orders, expectations take samples.
#include <algorithm>

#include <fmt/format.h>

#include "actors/scenario/world_player.hpp"

namespace deepinfer {

namespace {

std::shared_ptr<const sampling_params> params_of(const scenario_request& request) {
  auto out = std::make_shared<sampling_params>();
  out->temperature = request.sample_seed ? 1.0f : 0.0f;
  out->seed = request.sample_seed.value_or(0);
  out->presence_penalty = request.penalty ? 0.5f : 0.0f;
  out->max_tokens = request.max_tokens;
  out->min_tokens = request.min_tokens;
  out->logprobs = request.logprobs ? 0 : -1;
  out->stop = request.stop;
  out->stop_token_ids = request.stop_ids;
  out->reasoning = request.reasoning;
  if (request.grammar) out->grammar = "scenario";
  out->skip_special_tokens = false;
  return out;
}

hash_script script_of(const scenario_request& request, std::vector<token_id> prompt) {
  hash_script out;
  out.prompt = std::move(prompt);
  out.tokens.assign(request.tokens.begin(), request.tokens.end());
  out.stop_after = request.stop_after;
  out.accept = request.accept;
  out.confidence.assign(request.confidence.begin(), request.confidence.end());
  if (request.grammar)
    out.grammar = hash_grammar{request.grammar->ends_after, request.grammar->dead_end_at};
  return out;
}

}  // namespace

void scenario_player::note_script() {
  for (const auto& action : of_.actions) {
    if (const auto* verb = std::get_if<deliver_verb>(&action.verb);
        verb && !action.when.after && action.when.at_us.value_or(0) == 0) {
      do_verb(*verb);
    } else if (action.when.after) {
      after_actions_.push_back(&action);
    } else {
      at(action.when.at_us.value_or(0), [this, &action] { act(action); });
    }
  }
  for (std::size_t i = 0; i < of_.expectations.size(); ++i) {
    const auto& it = of_.expectations[i];
    if (!holds_for(it.only_for, it_.settings)) continue;
    if (it.when.after) after_asks_.push_back(i);
    // Behind what happens at that moment: one microsecond is shorter than anything played.
    if (it.when.at_us)
      at(*it.when.at_us, [this, i] { at(now_us(), [this, i] { ask_expectation(i); }); });
  }
}

// At once when the event happens, and once.
void scenario_player::watch_events() {
  while (seen_entries_ != outcome_.log.entries().size()) {
    seen_entries_ = outcome_.log.entries().size();
    std::vector<const scenario_action*> now;
    std::erase_if(after_actions_, [&](const auto* action) {
      if (!outcome_.log.find(*action->when.after)) return false;
      now.push_back(action);
      return true;
    });
    std::vector<std::size_t> asked;
    std::erase_if(after_asks_, [&](std::size_t i) {
      if (!outcome_.log.find(*of_.expectations[i].when.after)) return false;
      asked.push_back(i);
      return true;
    });
    for (const auto i : asked) ask_expectation(i);
    for (const auto* action : now) act(*action);
  }
}

void scenario_player::act(const scenario_action& action) {
  std::visit([this](const auto& verb) { do_verb(verb); }, action.verb);
}

void scenario_player::ask_expectation(std::size_t index) {
  const auto& it = of_.expectations[index];
  std::optional<std::int64_t> sample;
  if (const auto* form = std::get_if<metric_form>(&it.form)) {
    for (std::int32_t rank = 0; rank < it_.engine.ranks; ++rank) {
      if (it.rank.value_or(rank) != rank) continue;
      auto value = ranks_[static_cast<std::size_t>(rank)].played->metric(form->metric);
      if (form->metric == "client_chunks_pending") value = chunks_pending(rank);
      if (value) sample = sample.value_or(0) + *value;
    }
  }
  outcome_.log.asked(now_us(), index, sample);
}

std::int32_t scenario_player::route(const scenario_request& request) const {
  if (request.rank >= 0) return request.rank;
  std::vector<std::int32_t> load(ranks_.size());
  for (const auto& it : requests_)
    if (it.rank >= 0 && !it.has_finished) ++load[static_cast<std::size_t>(it.rank)];
  return static_cast<std::int32_t>(std::min_element(load.begin(), load.end()) - load.begin());
}

void scenario_player::submit(std::int32_t request) {
  const auto& it = of_.requests[static_cast<std::size_t>(request)];
  auto& state = requests_[static_cast<std::size_t>(request)];
  state.rank = route(it);
  outcome_.log.submitted(now_us(), request);
  auto& seat = ranks_[static_cast<std::size_t>(state.rank)];
  seat.played->note_submit(request);
  seat.played->runner().register_script(
    sequence_of(request), script_of(it, answers_[static_cast<std::size_t>(request)].prompt));
  if (seat.scheduler)
    send(request);
  else
    seat.waiting.push_back(request);
}

void scenario_player::send(std::int32_t request) {
  const auto& it = of_.requests[static_cast<std::size_t>(request)];
  const auto& state = requests_[static_cast<std::size_t>(request)];
  if (state.has_finished) return;
  sequence_request made;
  made.sequence = sequence_of(request);
  made.prompt = std::make_shared<const std::vector<token_id>>(
    answers_[static_cast<std::size_t>(request)].prompt);
  made.params = params_of(it);
  made.priority = it.priority;
  tell_from_outside(ranks_[static_cast<std::size_t>(state.rank)].scheduler, submit_batch{made});
}

void scenario_player::finish_unsent(std::int32_t request, scenario_finish finish, errc code) {
  auto& state = requests_[static_cast<std::size_t>(request)];
  state.has_finished = true;
  audit_final final;
  final.finish = finish;
  final.code = code;
  std::vector<token_id> tokens;
  for (const auto& entry : outcome_.log.entries()) {
    if (entry.kind != audit_kind::tokens || entry.request != request) continue;
    const auto ids = outcome_.log.ids_of(entry);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  final.usage.prompt_tokens =
    static_cast<std::int32_t>(answers_[static_cast<std::size_t>(request)].prompt.size());
  final.usage.completion_tokens = static_cast<std::int32_t>(tokens.size());
  final.usage.cached_tokens = state.cached_tokens;
  if (of_.requests[static_cast<std::size_t>(request)].reasoning)
    final.usage.reasoning_tokens = reasoning_tokens_of(tokens);
  outcome_.log.finished(now_us(), request, state.rank, 0, final);
}

void scenario_player::do_verb(const submit_verb& verb) {
  for (std::int32_t i = 0; i < verb.count; ++i) {
    const auto request = verb.first + i;
    if (i == 0 || verb.every_us == 0)
      submit(request);
    else
      at(now_us() + i * verb.every_us, [this, request] { submit(request); });
  }
}

void scenario_player::do_verb(const abort_verb& verb) {
  for (const auto request : verb.requests) abort(request);
  for (std::size_t i = 0; i < verb.unknown.size(); ++i)
    if (ranks_[0].scheduler)
      tell_from_outside(ranks_[0].scheduler, abort_atom::value,
                        seq_id{1'000'000 + static_cast<std::uint64_t>(i)});
}

void scenario_player::order(std::int32_t rank, scheduler_order what,
                            std::function<void()> when_done) {
  const auto& scheduler = ranks_[static_cast<std::size_t>(rank)].scheduler;
  if (!scheduler) {
    if (when_done) when_done();
    return;
  }
  // The operator sits with the clients: an answer comes behind what they were told before.
  const auto number = ++orders_;
  if (when_done) answers_due_.emplace(number, std::move(when_done));
  actors_.system().spawn(
    [scheduler, what, number,
     clients = ranks_[static_cast<std::size_t>(rank)].clients](caf::event_based_actor* self) {
      self->request(scheduler, caf::infinite, what)
        .then([self, clients, number](bool) { self->send(clients, wake_atom::value, number); },
              [](caf::error&) {});
    });
}

void scenario_player::answered(std::uint64_t number) {
  const auto node = answers_due_.extract(number);
  if (!node.empty()) node.mapped()();
}

void scenario_player::order_all(const scheduler_order& what, std::function<void()> when_done) {
  auto missing = std::make_shared<std::size_t>(ranks_.size());
  for (std::int32_t rank = 0; rank < it_.engine.ranks; ++rank)
    order(rank, what, [missing, when_done] {
      if (--*missing == 0 && when_done) when_done();
    });
}

void scenario_player::do_verb(const preempt_verb& verb) {
  for (const auto request : verb.requests) {
    const auto rank = requests_[static_cast<std::size_t>(request)].rank;
    scheduler_order what;
    what.what = scheduler_order::verb::preempt;
    what.sequence = sequence_of(request);
    if (rank >= 0) order(rank, what);
  }
}

void scenario_player::do_verb(const pause_verb&) {
  order_all({.what = scheduler_order::verb::pause},
            [this] { outcome_.log.happened(now_us(), scenario_event_kind::paused); });
}

void scenario_player::do_verb(const resume_verb&) {
  order_all({.what = scheduler_order::verb::resume}, {});
}

void scenario_player::do_verb(const drain_verb& verb) {
  order_all({.what = scheduler_order::verb::drain}, [this] {
    has_drained_ = true;
    outcome_.log.happened(now_us(), scenario_event_kind::drained);
  });
  if (!verb.deadline_us) return;
  at(now_us() + *verb.deadline_us, [this] {
    if (!has_drained_) order_all({.what = scheduler_order::verb::abort_all}, {});
  });
}

void scenario_player::do_verb(const flush_verb& verb) {
  const auto what =
    verb.running ? scheduler_order::verb::flush_running : scheduler_order::verb::flush;
  order_all({.what = what}, {});
}

void scenario_player::do_verb(const kill_verb& verb) {
  if (!verb.client.empty()) {
    for (std::size_t i = 0; i < requests_.size(); ++i)
      if (of_.requests[i].client == verb.client) abort(static_cast<std::int32_t>(i));
    return;
  }
  if (verb.worker < 0) return fail("unsupported", "only workers and clients can be killed here");
  const auto& supervisor = ranks_[static_cast<std::size_t>(verb.worker)].supervisor;
  actors_.system().spawn([supervisor](caf::event_based_actor* self) {
    self->request(supervisor, caf::infinite, kill_atom::value, std::string("worker"))
      .then([](bool) {}, [](caf::error&) {});
  });
}

void scenario_player::do_verb(const rebalance_verb&) {
  fail("unsupported", "experts are not placed here");
}

void scenario_player::do_verb(const deliver_verb& verb) {
  if (verb.message != scenario_message::submit_step && verb.message != scenario_message::step_done)
    return fail("unsupported", "only submit_step and step_done pass a tap here");
  deliveries_.push_back(verb);
}

void scenario_player::do_verb(const set_verb& verb) {
  if (verb.depth) {
    scheduler_order what;
    what.what = scheduler_order::verb::set_depth;
    what.depth = *verb.depth;
    order_all(what, {});
  }
  if (!verb.policy && !verb.vote) return;
  scheduler_order what;
  what.what = scheduler_order::verb::set_policy;
  what.policy =
    policy_of(verb.policy.value_or(it_.engine.policy), verb.vote.value_or(it_.engine.vote));
  order_all(what, {});
}

}  // namespace deepinfer
