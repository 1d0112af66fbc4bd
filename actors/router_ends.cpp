#include "actors/router_ends.hpp"

#include "actors/client_state.hpp"
#include "actors/request_counts.hpp"
#include "actors/request_log.hpp"
#include "runtime/base/log.hpp"

namespace deepinfer {
namespace {

using pointer = router_pointer;
using open_request = router_state::open_request;

void unwatch_sink(pointer self, const caf::actor& sink) {
  const auto found = self->state.sinks.find(sink.address());
  if (found == self->state.sinks.end() || --found->second > 0) return;
  self->demonitor(sink);
  self->state.sinks.erase(found);
}

/// Nobody knows how many chunks of a started request its sink has got: the numbers begin again.
void send_last_chunks(const std::string& id, const open_request& it, finish_reason reason,
                      const error& why) {
  chunk_list list;
  for (std::int32_t i = 0; i < it.answers; ++i) {
    token_chunk chunk;
    chunk.request_id = id;
    chunk.seq = static_cast<std::uint64_t>(i);
    chunk.index = i;
    chunk.finish.emplace();
    chunk.finish->reason = reason;
    chunk.finish->code = why.code;
    chunk.finish->message = why.message;
    chunk.is_last = i + 1 == it.answers;
    list.chunks.push_back(std::move(chunk));
  }
  tell_from_outside(it.sink, chunk_atom::value, std::move(list));
}

/// No replica counts a request that never came to one.
void count_cancelled(pointer self, const open_request& it) {
  const request_counts counts(self->state.links.counts);
  counts.aborted(request_phase::queued);
  for (std::int32_t i = 0; i < it.answers; ++i)
    counts.answer_ended(finish_reason::abort, 0, std::nullopt, 0);
  counts.request_ended(now_us_of(self) - it.arrived_us);
}

std::string finish_words(finish_reason reason) {
  return std::string(name_of(reason));
}

}  // namespace

open_request extract(pointer self, const std::string& id) {
  auto node = self->state.requests.extract(id);
  unwatch_sink(self, node.mapped().sink);
  return std::move(node.mapped());
}

void log_end(pointer self, const std::string& id, const open_request& it, const request_end& how) {
  const auto& state = self->state;
  if (state.links.log_requests == request_logging::off || !is_logged(severity::info)) return;
  ended_request line;
  line.id = id;
  line.client_request_id = it.client_request_id;
  line.tenant = it.tenant;
  line.trace_id = it.trace_id;
  line.finish = how.finish;
  line.code = how.code;
  const auto at = state.replicas.find(it.replica);
  if (at != state.replicas.end()) line.replica = at->second.link.name;
  line.prompt_tokens = it.prompt_tokens;
  line.output_tokens = how.outputs;
  line.seed = how.seed ? how.seed : it.seed;
  line.total_us = now_us_of(self) - it.arrived_us;
  if (state.links.log_requests == request_logging::full && it.asked)
    line.asked_text = it.asked->text.value_or(it.asked->chat.value_or(""));
  log_event(severity::info, log_line_of(line), log_fields_of(line));
}

void end_with(pointer self, const std::string& id, const error& why) {
  auto it = extract(self, id);
  const auto reason = why.code == errc::cancelled ? finish_reason::abort : finish_reason::error;
  log_end(self, id, it, {0, finish_words(reason), why.code});
  if (it.answer)
    it.answer->deliver(to_caf(why));
  else
    send_last_chunks(id, it, finish_reason::error, why);
}

void end_cancelled(pointer self, const std::string& id) {
  const error why{errc::cancelled, "cancelled", {}};
  auto it = extract(self, id);
  count_cancelled(self, it);
  log_end(self, id, it, {0, finish_words(finish_reason::abort), why.code});
  if (it.answer) it.answer->deliver(id);
  send_last_chunks(id, it, finish_reason::abort, why);
}

void end_gone(pointer self, const std::string& id) {
  auto it = extract(self, id);
  count_cancelled(self, it);
  log_end(self, id, it, {0, "gone", errc::ok});
  if (it.answer) it.answer->deliver(to_caf({errc::cancelled, "the client has gone", {}}));
}

}  // namespace deepinfer
