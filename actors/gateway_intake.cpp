// How requests come in: checked, tokenized here or in the worker's thread, named, submitted.
#include <random>

#include <fmt/format.h>

#include "actors/client_state.hpp"
#include "actors/gateway_parts.hpp"

namespace deepinfer::gateway_parts {
namespace {

using promise = caf::typed_response_promise<std::string>;

/// For a long prompt that waits behind others.
constexpr std::chrono::seconds intake_timeout{120};

/// Below 2^53: a client whose JSON has no larger whole numbers can give it back.
std::uint64_t draw_seed() {
  std::random_device source;
  return ((std::uint64_t{source()} << 32) | source()) >> 11;
}

std::size_t text_bytes(const generate_request& asked) {
  return (asked.text ? asked.text->size() : 0) + (asked.chat ? asked.chat->size() : 0);
}

result<void> check(const gateway_state& state, const generate_request& asked,
                   const std::string& id) {
  const auto& config = state.config;
  if (state.is_down) return fail(errc::rank_lost, "the node's rank is lost");
  if (state.by_id.contains(id) || state.intakes.contains(id))
    return fail(errc::invalid_argument, fmt::format("request_id: {} is in use", id), "request_id");
  if (asked.sampling.n > config.max_n)
    return fail(errc::invalid_argument,
                fmt::format("n: found {}, expected 1 to {}", asked.sampling.n, config.max_n), "n");
  auto open = std::max(state.requests.size(), state.by_sequence.size());
  for (const auto& [name, it] : state.intakes)
    open += static_cast<std::size_t>(std::max(1, it.job->asked.sampling.n));
  open += static_cast<std::size_t>(std::max(1, asked.sampling.n));
  if (open <= static_cast<std::size_t>(std::max(0, config.max_open_requests))) return {};
  return fail(errc::queue_full,
              fmt::format("with this request {} answers would be open, at most {} may be", open,
                          config.max_open_requests));
}

void begin(pointer self, const std::string& id, const generate_request& asked,
           accepted_request accepted, client_sink* sink, std::int64_t arrived_us) {
  auto& state = self->state;
  const auto first = state.sequences + 1;
  state.sequences += static_cast<std::uint64_t>(asked.sampling.n);
  state.counts.accepted(static_cast<std::int32_t>(accepted.prompt->size()),
                        accepted.asked_max_tokens);
  auto request = std::make_unique<gateway_request>(
    open_request(id, asked, std::move(accepted), state.config.intake->words(), seq_id{first},
                 state.counts, arrived_us),
    sink);
  auto& what = request->what;
  if (state.config.log_requests == request_logging::full)
    what.keep_text(asked.text.value_or(asked.chat.value_or("")));
  submit_batch batch;
  for (std::int32_t i = 0; i < what.answers(); ++i) {
    batch.push_back(what.sequence(i));
    state.by_sequence.emplace(batch.back().sequence, std::pair{request.get(), i});
    if (state.config.on_accepted) state.config.on_accepted(batch.back());
  }
  state.by_id.emplace(id, first);
  state.requests.emplace(first, std::move(request));
  if (state.rank) tell(self, *state.rank, std::move(batch));
  arm_tick(self);
}

void end_intake(pointer self, const std::string& id, ticket number, intake_outcome_ptr outcome) {
  auto& state = self->state;
  const auto found = state.intakes.find(id);
  // Its client may have left, and another may use the name.
  if (found == state.intakes.end() || found->second.number != number) return;
  const auto it = std::move(found->second);
  state.intakes.erase(found);
  state.counts.tokenized(outcome->took_us);
  auto& accepted = outcome->accepted;
  if (accepted && state.is_down) accepted = fail(errc::rank_lost, "the node's rank is lost");
  if (!accepted) {
    release_sink(self, it.sink);
    state.intake_answers.fail(number, to_caf(accepted.error()));
    return;
  }
  state.intake_answers.settle(number, id);
  begin(self, id, it.job->asked, std::move(*accepted), it.sink, it.arrived_us);
}

promise generate_later(pointer self, const std::string& id, generate_request& asked,
                       std::uint64_t seed, const caf::actor& sink) {
  auto& state = self->state;
  auto answer = self->make_response_promise<std::string>();
  if (state.intakes.size() >= state.config.max_long_prompts) {
    answer.deliver(to_caf({errc::overloaded,
                           fmt::format("{} long prompts wait to be tokenized, at most {} may",
                                       state.intakes.size(), state.config.max_long_prompts),
                           {}}));
    return answer;
  }
  if (!state.worker) {
    state.worker = self->system().spawn<caf::detached>(intake_worker, state.config.intake,
                                                       caf::actor_cast<caf::actor_addr>(self));
    self->monitor(state.worker);
  }
  const ticket number{++state.tickets};
  const auto arrived_us = now_us(state) - asked.waited_us;
  const auto job = std::make_shared<const intake_job>(intake_job{std::move(asked), seed});
  state.intakes.emplace(id, long_intake{number, job, use_sink(self, sink), arrived_us});
  state.intake_answers.add(number, answer);
  ask(self, state.worker, intake_timeout, job)
    .then([self, id,
           number](const intake_outcome_ptr& outcome) { end_intake(self, id, number, outcome); },
          [self, id, number](caf::error&) {
            const auto found = self->state.intakes.find(id);
            if (found != self->state.intakes.end() && found->second.number == number)
              drop_intake(self, id, {errc::overloaded, "the prompt was not tokenized in time", {}});
          });
  return answer;
}

}  // namespace

bool drop_intake(pointer self, const std::string& id, const error& why) {
  auto& state = self->state;
  const auto found = state.intakes.find(id);
  if (found == state.intakes.end()) return false;
  const auto it = std::move(found->second);
  state.intakes.erase(found);
  release_sink(self, it.sink);
  state.intake_answers.fail(it.number, to_caf(why));
  return true;
}

void drop_intakes_of(pointer self, const client_sink* sink, const error& why) {
  std::vector<std::string> gone;
  for (const auto& [id, it] : self->state.intakes)
    if (!sink || it.sink == sink) gone.push_back(id);
  for (const auto& id : gone) drop_intake(self, id, why);
}

void drop_all_intakes(pointer self, const error& why) {
  drop_intakes_of(self, nullptr, why);
}

promise generate(pointer self, generate_request& asked, const caf::actor& sink) {
  auto& state = self->state;
  const auto id =
    asked.request_id.empty() ? fmt::format("r{}", ++state.requests_seen) : asked.request_id;
  auto checked = check(state, asked, id);
  const auto seed = state.config.seed ? *state.config.seed : draw_seed();
  if (checked && text_bytes(asked) > state.config.inline_bytes)
    return generate_later(self, id, asked, seed, sink);
  auto answer = self->make_response_promise<std::string>();
  if (!checked) {
    answer.deliver(to_caf(checked.error()));
    return answer;
  }
  auto outcome = take_in(*state.config.intake, asked, seed);
  if (!asked.ids) state.counts.tokenized(outcome.took_us);
  if (!outcome.accepted) {
    answer.deliver(to_caf(outcome.accepted.error()));
    return answer;
  }
  answer.deliver(id);
  begin(self, id, asked, std::move(*outcome.accepted), use_sink(self, sink),
        now_us(state) - asked.waited_us);
  return answer;
}

}  // namespace deepinfer::gateway_parts
