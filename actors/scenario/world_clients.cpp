// Clients: what their requests gained is sent to them as far as they take it. The player stands in
// for the gateway here, with the gateway's own decisions (token_credit).
#include <algorithm>

#include "actors/scenario/world_player.hpp"

namespace deepinfer {

namespace {

audit_final final_of(const sequence_finish& finish) {
  audit_final out;
  out.code = finish.code;
  out.usage = finish.usage;
  switch (finish.reason) {
  case finish_reason::stop: out.finish = scenario_finish::stop; break;
  case finish_reason::length: out.finish = scenario_finish::length; break;
  case finish_reason::abort: out.finish = scenario_finish::abort; break;
  case finish_reason::resource: out.finish = scenario_finish::resource; break;
  default: {
    // Refused before it could start: rejected in the words of the language.
    const bool is_refusal = out.code == errc::invalid_argument ||
                            out.code == errc::context_length_exceeded ||
                            out.code == errc::draining || out.code == errc::queue_full;
    out.finish = is_refusal ? scenario_finish::rejected : scenario_finish::error;
  }
  }
  return out;
}

}  // namespace

void scenario_player::gain(std::int32_t request, const sequence_chunk& chunk, std::int64_t step) {
  auto& it = requests_[static_cast<std::size_t>(request)];
  if (it.final) send_out(request);  // what comes behind an end is the judge's business
  if (!chunk.tokens.empty()) {
    gained_part part{step, chunk.first_output, chunk.tokens, {}};
    for (const auto& logprob : chunk.logprobs) part.logprobs.push_back(logprob.logprobs.at(0));
    it.waiting.push_back(std::move(part));
  }
  if (chunk.finish) {
    it.final = final_of(*chunk.finish);
    it.final_step = step;
    if (!waits_for_credit(chunk.finish->reason)) {
      it.credit.overdraw(now_us());
      send_out(request);
      return;
    }
  }
  offer(request);
  tell_hold(request);
}

void scenario_player::offer(std::int32_t request) {
  auto& it = requests_[static_cast<std::size_t>(request)];
  if (it.waiting.empty() && !it.final) return;
  if (it.credit.spend(now_us())) send_out(request);
}

void scenario_player::send_out(std::int32_t request) {
  auto& it = requests_[static_cast<std::size_t>(request)];
  auto& log = outcome_.log;
  for (const auto& part : std::exchange(it.waiting, {}))
    log.tokens(now_us(), request, it.rank, part.step, part.first_output, part.tokens,
               part.logprobs);
  if (const auto final = std::exchange(it.final, {})) {
    it.has_finished = true;
    log.finished(now_us(), request, it.rank, it.final_step, *final);
  }
  if (it.takes_at_once) it.credit.take(1, now_us());
}

void scenario_player::tell_hold(std::int32_t request) {
  auto& it = requests_[static_cast<std::size_t>(request)];
  const auto change = it.credit.hold_change();
  const auto& scheduler = ranks_[static_cast<std::size_t>(it.rank)].scheduler;
  if (!change || it.has_finished || !scheduler) return;
  tell_from_outside(scheduler, hold_atom::value, sequence_of(request), *change);
}

void scenario_player::take_chunks(std::int32_t request, std::int32_t chunks) {
  auto& it = requests_[static_cast<std::size_t>(request)];
  if (it.rank < 0) return;
  it.credit.take(chunks, now_us());
  offer(request);
  tell_hold(request);
}

void scenario_player::consume_every(std::int32_t request, const consume_verb& verb,
                                    std::uint64_t turn) {
  auto& it = requests_[static_cast<std::size_t>(request)];
  if (it.has_finished || it.consume_turn != turn) return;
  take_chunks(request, verb.chunks);
  if (verb.every_us == 0 || verb.chunks == 0) return;
  at(now_us() + verb.every_us, [this, request, verb, turn] { consume_every(request, verb, turn); });
}

void scenario_player::do_verb(const consume_verb& verb) {
  for (const auto request : verb.requests) {
    auto& it = requests_[static_cast<std::size_t>(request)];
    it.takes_at_once = false;
    consume_every(request, verb, ++it.consume_turn);
  }
}

// What the rank had not ended ends; what only waits for its client has lost nothing.
void scenario_player::lose_rank(std::int32_t request) {
  auto& it = requests_[static_cast<std::size_t>(request)];
  if (it.final) return;
  send_out(request);
  finish_unsent(request, scenario_finish::error, errc::rank_lost);
}

// The scheduler ends what it knows; what only waits for its client ends here.
void scenario_player::abort(std::int32_t request) {
  auto& it = requests_[static_cast<std::size_t>(request)];
  if (it.final) {
    it.final->finish = scenario_finish::abort;
    it.final->code = errc::cancelled;
    it.final_step = 0;
    return send_out(request);
  }
  const auto& scheduler = ranks_[static_cast<std::size_t>(std::max(0, it.rank))].scheduler;
  if (scheduler) {
    tell_from_outside(scheduler, abort_atom::value, sequence_of(request));
  } else if (it.rank >= 0 && !it.has_finished) {
    send_out(request);
    finish_unsent(request, scenario_finish::abort, errc::cancelled);
  }
}

std::int64_t scenario_player::chunks_pending(std::int32_t rank) const {
  std::int64_t out = 0;
  for (const auto& it : requests_)
    if (it.rank == rank && !it.has_finished) out += it.credit.pending();
  return out;
}

}  // namespace deepinfer
