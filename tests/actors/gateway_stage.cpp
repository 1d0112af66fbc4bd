#include "tests/actors/gateway_stage.hpp"

#include <doctest/doctest.h>

#include "actors/client_state.hpp"

namespace deepinfer::test {
namespace {

scheduler_actor::behavior_type remembering_rank(scheduler_actor::pointer,
                                                played_rank_state* state) {
  return {
    [state](const submit_batch& batch) {
      state->submitted.insert(state->submitted.end(), batch.begin(), batch.end());
    },
    [](const kv_grant&) {},
    [state](abort_atom, seq_id sequence) { state->aborted.push_back(sequence); },
    [state](hold_atom, seq_id sequence, bool holds) { state->held.emplace_back(sequence, holds); },
    [](const scheduler_order&) { return true; },
    [](wake_atom) {},
    [](turn_atom) {},
    [](turn_atom, std::uint64_t) {},
    [](tick_atom) {},
    [](stats_atom) { return node_stats{}; },
    [](trace_atom, std::uint32_t) { return std::vector<step_trace>{}; },
  };
}

request_watcher_actor::behavior_type remembering_watcher(request_watcher_actor::pointer,
                                                         std::vector<told_of_request>* told) {
  return {
    [told](started_atom, std::int32_t, const std::string& id, std::int32_t cached) {
      told->push_back({"started", id, cached});
    },
    [told](ended_atom, std::int32_t, const std::string& id, const request_end& end) {
      told->push_back({"ended", id, end.outputs});
    },
    [told](returned_atom, std::int32_t replica, const std::string& id) {
      told->push_back({"returned", id, replica});
    },
    [told](ready_atom, std::int32_t replica, bool is_ready, const std::string& why) {
      told->push_back({is_ready ? "ready" : "not ready", why, replica});
    },
    [](slots_atom, std::int32_t, std::int32_t) {},
    [told](gone_atom, std::int32_t replica, const std::string& why) {
      told->push_back({"gone", why, replica});
    },
  };
}

caf::behavior remembering_sink(caf::event_based_actor* self, played_sink* into) {
  return {
    [into](chunk_atom, const chunk_list& list) {
      into->lists.push_back(list.chunks.size());
      into->chunks.insert(into->chunks.end(), list.chunks.begin(), list.chunks.end());
    },
    [self](stop_atom) { self->quit(); },
  };
}

std::shared_ptr<const request_intake> make_intake() {
  auto words = tokenizer::open(std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41").value();
  intake_facts facts;
  facts.model_name = "tiny-v41";
  facts.vocab_size = 2048;
  facts.max_model_len = 64;
  facts.eos_ids = {1};
  return std::make_shared<const request_intake>(std::move(words), std::move(facts));
}

}  // namespace

gateway_stage::gateway_stage(gateway_config config, bool is_watched) {
  auto& system = actors_.system();
  scheduler_ = system.spawn(remembering_rank, &rank);
  watcher_ = system.spawn(remembering_watcher, &watched);
  for (int i = 0; i < 2; ++i) {
    sinks.push_back(std::make_unique<played_sink>());
    sinks.back()->handle = system.spawn(remembering_sink, sinks.back().get());
  }
  config.intake = make_intake();
  config.seed = 7;
  config.counts = &counts;
  if (is_watched) config.watcher = watcher_;
  config.replica = 4;
  config.now_us = [this] { return now_us; };
  gateway_ = system.spawn(gateway, std::move(config));
  rank_up();
}

gateway_stage::~gateway_stage() {
  if (gateway_) tell_from_outside(gateway_, stop_atom::value);
  actors_.run_all();
  gateway_ = nullptr;
  for (auto& sink : sinks) {
    tell_from_outside(sink->handle, stop_atom::value);
    sink->handle = nullptr;
  }
  actors_.run_all();
}

result<std::string> gateway_stage::start(generate_request request, std::size_t sink) {
  auto answer = std::make_shared<result<std::string>>(fail(errc::internal, "no answer"));
  actors_.system().spawn([gate = gateway_, request = std::move(request), answer,
                          to = sinks[sink]->handle](caf::event_based_actor* self) {
    self->request(gate, caf::infinite, generate_atom::value, request, to)
      .then([answer](const std::string& id) { *answer = id; },
            [answer](caf::error& why) { *answer = tl::unexpected<error>(from_caf(why)); });
  });
  actors_.run_all();
  return *answer;
}

bool gateway_stage::cancel(const std::string& id) {
  auto answer = std::make_shared<bool>(false);
  actors_.system().spawn([gate = gateway_, id, answer](caf::event_based_actor* self) {
    self->request(gate, caf::infinite, cancel_atom::value, id)
      .then([answer](bool was_running) { *answer = was_running; }, [](caf::error&) {});
  });
  actors_.run_all();
  return *answer;
}

void gateway_stage::take(const std::string& id, std::int32_t chunks) {
  tell_from_outside(gateway_, credit_atom::value, id, chunks);
  actors_.run_all();
}

request_list gateway_stage::list() {
  auto answer = std::make_shared<request_list>();
  actors_.system().spawn([gate = gateway_, answer](caf::event_based_actor* self) {
    self->request(gate, caf::infinite, list_atom::value)
      .then([answer](const request_list& it) { *answer = it; }, [](caf::error&) {});
  });
  actors_.run_all();
  return *answer;
}

void gateway_stage::give(chunk_batch batch) {
  tell_from_outside(gateway_, std::move(batch));
  actors_.run_all();
}

void gateway_stage::rank_up() {
  tell_from_outside(gateway_, rank_up_atom::value, scheduler_);
  actors_.run_all();
}

void gateway_stage::rank_down(bool is_final) {
  tell_from_outside(gateway_, rank_down_atom::value, std::string("gone"), is_final);
  actors_.run_all();
}

void gateway_stage::leave(std::size_t sink) {
  tell_from_outside(sinks[sink]->handle, stop_atom::value);
  actors_.run_all();
}

// The delayed ticks of the gateway come by the actors' own clock.
void gateway_stage::wait(std::chrono::milliseconds time) {
  const auto end = now_us + std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  while (const auto next = actors_.next_timeout_ns()) {
    if (*next > (end - 1'000'000) * 1000) break;
    now_us = std::max(now_us, 1'000'000 + *next / 1000);
    actors_.advance_to(*next);
    actors_.run_all();
  }
  now_us = end;
  actors_.advance_to((end - 1'000'000) * 1000);
  actors_.run_all();
}

void gateway_stage::stop() {
  tell_from_outside(gateway_, stop_atom::value);
  actors_.run_all();
  gateway_ = nullptr;
}

sequence_chunk gives(std::uint64_t sequence, std::vector<token_id> tokens, finish_reason reason) {
  sequence_chunk out;
  out.sequence = {sequence};
  out.tokens = std::move(tokens);
  if (reason == finish_reason::none) return out;
  out.finish.emplace();
  out.finish->reason = reason;
  return out;
}

chunk_batch batch_of(std::vector<sequence_chunk> chunks, std::vector<std::uint64_t> started) {
  chunk_batch out;
  out.chunks = std::move(chunks);
  for (const auto sequence : started) out.started.push_back({{sequence}, 1});
  return out;
}

generate_request asks(const std::string& id, std::int32_t n, std::int32_t window) {
  generate_request out;
  out.request_id = id;
  out.ids = {5, 6, 7};
  out.sampling.n = n;
  out.window = window;
  return out;
}

}  // namespace deepinfer::test
