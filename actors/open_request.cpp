#include "actors/open_request.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/request_log.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer {
namespace {

double ms(std::int64_t us) {
  return static_cast<double>(us) / 1000.0;
}

std::int64_t between(std::int64_t begin, std::int64_t end) {
  return begin < 0 || end < 0 ? 0 : end - begin;
}

}  // namespace

open_request::open_request(std::string id, const generate_request& asked, accepted_request accepted,
                           const tokenizer& words, seq_id first, const request_counts& counts,
                           std::int64_t now_us)
  : id_(std::move(id)),
    client_request_id_(asked.client_request_id),
    tenant_(asked.tenant),
    trace_id_(trace_of(asked.traceparent)),
    prompt_tokens_(static_cast<std::int32_t>(accepted.prompt->size())),
    arrived_us_(now_us),
    counts_(counts),
    credit_(asked.window) {
  for (std::int32_t i = 0; i < asked.sampling.n; ++i) {
    auto params = accepted.params;
    if (i > 0) {
      auto own = *params;
      own.seed = choice_seed(own.seed, static_cast<std::uint32_t>(i));
      params = std::make_shared<const sampling_params>(std::move(own));
    }
    auto shown = accepted.output;
    shown.call_suffix = i == 0 ? id_ : fmt::format("{}_{}", id_, i);
    answers_.emplace_back(sequence_request{{first.value + static_cast<std::uint64_t>(i)},
                                           accepted.prompt,
                                           std::move(params),
                                           asked.priority,
                                           accepted.cache_salt},
                          output_stream(words, std::move(shown)));
  }
}

request_phase open_request::phase() const {
  if (first_us_ >= 0) return request_phase::decode;
  return has_started() ? request_phase::prefill : request_phase::queued;
}

bool open_request::start(std::int32_t answer, std::int32_t cached_tokens, std::int64_t now_us) {
  auto& it = at(answer);
  if (it.has_ended) return false;
  if (it.starts++ > 0) return false;  // it was preempted and has come back
  it.started_us = now_us;
  it.cached_tokens = cached_tokens;
  counts_.started(prompt_tokens_, cached_tokens, now_us - arrived_us_);
  if (has_started()) return false;
  started_us_ = now_us;
  cached_tokens_ = cached_tokens;
  return true;
}

void open_request::note_tokens(open_answer& it, std::int32_t tokens, std::int64_t now_us) {
  if (tokens == 0) return;
  const bool is_first = it.first_us < 0;
  std::optional<std::int64_t> gap;
  if (!is_first) gap = now_us - it.last_us;
  counts_.gained(tokens, gap);
  if (is_first) {
    it.first_us = now_us;
    counts_.first_token(between(it.started_us, now_us));
  }
  if (first_us_ < 0) {
    first_us_ = now_us;
    counts_.answered(now_us - arrived_us_);
  }
  it.last_us = last_us_ = now_us;
}

usage_counts open_request::usage_of(const open_answer& it) const {
  usage_counts out;
  out.prompt_tokens = prompt_tokens_;
  out.completion_tokens = it.output.tokens();
  out.cached_tokens = it.cached_tokens;
  return out;
}

request_timings open_request::timings_of(const open_answer& it) const {
  request_timings out;
  out.queued_us = (it.started_us < 0 ? it.ended_us : it.started_us) - arrived_us_;
  out.prefill_us = between(it.started_us, it.first_us < 0 ? it.ended_us : it.first_us);
  out.decode_us = between(it.first_us, it.last_us);
  out.preemptions = std::max(0, it.starts - 1);
  return out;
}

void open_request::note_end(open_answer& it, std::int64_t now_us) {
  it.has_ended = true;
  it.ended_us = now_us;
  auto& finish = *it.waiting.finish;
  finish.seed = seed();
  finish.usage.prompt_tokens = prompt_tokens_;
  it.waiting.timings = timings_of(it);
}

bool open_request::push(std::int32_t answer, const sequence_chunk& gained, std::int64_t now_us,
                        std::vector<token_chunk>& out) {
  auto& it = at(answer);
  if (it.has_ended) return false;
  note_tokens(it, static_cast<std::int32_t>(gained.tokens.size()), now_us);
  it.output.push(gained, it.waiting);
  const bool ends_early = !it.waiting.finish && it.output.has_ended();
  if (ends_early) it.output.finish_early(usage_of(it), it.waiting);
  if (it.waiting.finish) note_end(it, now_us);
  offer(answer, now_us, out);
  return ends_early;
}

void open_request::end(std::int32_t answer, const forced_end& how, std::int64_t now_us,
                       std::vector<token_chunk>& out) {
  auto& it = at(answer);
  if (it.is_closed) return;
  if (!it.has_ended) {
    sequence_chunk last;
    last.finish.emplace();
    last.finish->reason = how.reason;
    last.finish->usage = usage_of(it);
    it.output.push(last, it.waiting);
    note_end(it, now_us);
  }
  auto& finish = *it.waiting.finish;
  finish.reason = how.reason;
  finish.code = how.code;
  finish.message = how.message;
  offer(answer, now_us, out);
}

void open_request::offer(std::int32_t answer, std::int64_t now_us, std::vector<token_chunk>& out) {
  auto& it = at(answer);
  const auto& finish = it.waiting.finish;
  if (finish && !waits_for_credit(finish->reason)) {
    credit_.overdraw(now_us);
    if (it.is_waiting) std::erase(queue_, answer);
    return send(answer, now_us, out);
  }
  if (it.is_waiting) return;
  if (credit_.spend(now_us)) return send(answer, now_us, out);
  it.is_waiting = true;
  queue_.push_back(answer);
}

void open_request::send(std::int32_t answer, std::int64_t now_us, std::vector<token_chunk>& out) {
  auto& it = at(answer);
  it.is_waiting = false;
  auto chunk = std::exchange(it.waiting, {});
  chunk.request_id = id_;
  chunk.index = answer;
  chunk.seq = next_seq_++;
  if (chunk.seq == 0) chunk.seed = seed();
  if (asked_text_) it.shown += chunk.reasoning_text + chunk.text;
  if (chunk.finish) {
    it.is_closed = true;
    it.reason = chunk.finish->reason;
    chunk.is_last = ++closed_ == answers();
    std::optional<std::int64_t> inference;
    if (it.started_us >= 0) inference = it.ended_us - it.started_us;
    counts_.answer_ended(it.reason, it.output.tokens(), inference, chunk.timings->decode_us);
    if (chunk.is_last) counts_.request_ended(now_us - arrived_us_);
  }
  out.push_back(std::move(chunk));
}

void open_request::let_go(std::int64_t now_us, std::vector<token_chunk>& out) {
  while (!queue_.empty()) {
    credit_.overdraw(now_us);
    const auto answer = queue_.front();
    queue_.pop_front();
    send(answer, now_us, out);
  }
}

void open_request::take(std::int32_t chunks, std::int64_t now_us, std::vector<token_chunk>& out) {
  credit_.take(chunks, now_us);
  while (!queue_.empty() && credit_.spend(now_us)) {
    const auto answer = queue_.front();
    queue_.pop_front();
    send(answer, now_us, out);
  }
}

std::uint64_t open_request::seed() const {
  return answers_.front().sequence.params->seed;
}

std::int32_t open_request::output_tokens() const {
  std::int32_t out = 0;
  for (const auto& it : answers_) out += it.output.tokens();
  return out;
}

request_info open_request::info(std::int64_t now_us) const {
  request_info out;
  out.id = id_;
  out.client_request_id = client_request_id_;
  out.tenant = tenant_;
  out.state = credit_.is_held() ? "paused" : std::string(name_of(phase()));
  out.prompt_tokens = prompt_tokens_;
  out.cached_tokens = cached_tokens_;
  out.output_tokens = output_tokens();
  out.age_us = now_us - arrived_us_;
  out.chunks_pending = credit_.pending();
  out.seed = seed();
  return out;
}

std::string open_request::finish_words() const {
  std::string out;
  for (std::size_t i = 0; i < answers_.size(); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : ",",
                       answers_[i].is_closed ? name_of(answers_[i].reason) : "gone");
  return out;
}

std::vector<log_field> open_request::log_fields(std::int64_t now_us) const {
  const auto started = has_started() ? started_us_ : now_us;
  std::vector<log_field> out{{"request_id", id_}, {"finish_reason", finish_words()}};
  add_names(out, {id_, client_request_id_, tenant_, trace_id_});
  out.emplace_back("prompt_tokens", prompt_tokens_);
  out.emplace_back("cached_tokens", cached_tokens_);
  out.emplace_back("completion_tokens", output_tokens());
  out.emplace_back("seed", seed());
  out.emplace_back("queue_ms", ms(started - arrived_us_));
  out.emplace_back("prefill_ms", ms(between(started_us_, first_us_ < 0 ? now_us : first_us_)));
  out.emplace_back("decode_ms", ms(between(first_us_, last_us_)));
  out.emplace_back("total_ms", ms(now_us - arrived_us_));
  return out;
}

request_span open_request::span(std::int64_t now_us) const {
  constexpr std::int64_t ns_of_us = 1000;
  request_span out;
  out.id = id_;
  out.queued_ns = arrived_us_ * ns_of_us;
  if (has_started()) out.prefill_ns = started_us_ * ns_of_us;
  if (first_us_ >= 0) out.decode_ns = first_us_ * ns_of_us;
  out.end_ns = now_us * ns_of_us;
  out.prompt_tokens = prompt_tokens_;
  out.cached_tokens = cached_tokens_;
  out.output_tokens = output_tokens();
  for (const auto& it : answers_) out.preemptions += std::max(0, it.starts - 1);
  out.finish = finish_words();
  return out;
}

std::string open_request::log_line(std::optional<request_phase> gone_in,
                                   std::int64_t now_us) const {
  auto out = line_of({id_, client_request_id_, tenant_, trace_id_});
  out += " finish=" + finish_words();
  const auto started = has_started() ? started_us_ : now_us;
  out +=
    fmt::format(" prompt={} cached={} output={} seed={} queued_ms={:.1f} prefill_ms={:.1f} "
                "decode_ms={:.1f} total_ms={:.1f}",
                prompt_tokens_, cached_tokens_, output_tokens(), seed(), ms(started - arrived_us_),
                ms(between(started_us_, first_us_ < 0 ? now_us : first_us_)),
                ms(between(first_us_, last_us_)), ms(now_us - arrived_us_));
  if (gone_in) out += fmt::format(" ended_in={}", name_of(*gone_in));
  if (!asked_text_) return out;
  out += " asked=" + in_quotes(*asked_text_);
  for (const auto& it : answers_) out += " answered=" + in_quotes(it.shown);
  return out;
}

}  // namespace deepinfer
