#include "actors/request_counts.hpp"

namespace deepinfer {
namespace {

double seconds(std::int64_t us) {
  return static_cast<double>(us) * 1e-6;
}

}  // namespace

std::string_view name_of(request_phase phase) {
  switch (phase) {
  case request_phase::queued: return "queued";
  case request_phase::prefill: return "prefill";
  case request_phase::decode: return "decode";
  }
  return "?";
}

void request_counts::accepted(std::int32_t prompt_tokens,
                              std::optional<std::int32_t> max_tokens) const {
  if (!to_) return;
  to_->observe(metric::request_prompt_tokens, prompt_tokens);
  if (max_tokens) to_->observe(metric::request_params_max_tokens, *max_tokens);
}

void request_counts::tokenized(std::int64_t us) const {
  if (to_) to_->observe(metric::tokenize_seconds, seconds(us));
}

void request_counts::started(std::int32_t prompt_tokens, std::int32_t cached_tokens,
                             std::int64_t queued_us) const {
  if (!to_) return;
  to_->observe(metric::request_queue_time_seconds, seconds(queued_us));
  to_->add(metric::prompt_tokens_total, prompt_tokens);
  to_->add(metric::prefix_cache_queries_total, prompt_tokens);
  to_->add(metric::prefix_cache_hits_total, cached_tokens);
}

void request_counts::first_token(std::int64_t prefill_us) const {
  if (to_) to_->observe(metric::request_prefill_time_seconds, seconds(prefill_us));
}

void request_counts::answered(std::int64_t us) const {
  if (to_) to_->observe(metric::time_to_first_token_seconds, seconds(us));
}

void request_counts::gained(std::int32_t tokens, std::optional<std::int64_t> gap_us) const {
  if (!to_) return;
  to_->add(metric::generation_tokens_total, tokens);
  if (gap_us) to_->observe(metric::inter_token_latency_seconds, seconds(*gap_us));
}

void request_counts::answer_ended(finish_reason reason, std::int32_t tokens,
                                  std::optional<std::int64_t> inference_us,
                                  std::int64_t decode_us) const {
  if (!to_) return;
  to_->add(metric::request_success_total, 1.0, {name_of(reason)});
  if (!inference_us) return;
  to_->observe(metric::request_generation_tokens, tokens);
  to_->observe(metric::request_inference_time_seconds, seconds(*inference_us));
  if (tokens > 0) to_->observe(metric::request_decode_time_seconds, seconds(decode_us));
}

void request_counts::request_ended(std::int64_t us) const {
  if (to_) to_->observe(metric::e2e_request_latency_seconds, seconds(us));
}

void request_counts::aborted(request_phase phase) const {
  if (to_) to_->add(metric::request_aborts_total, 1.0, {name_of(phase)});
}

void request_counts::refused(std::string_view reason) const {
  if (to_) to_->add(metric::queue_rejections_total, 1.0, {reason});
}

void request_counts::slow() const {
  if (to_) to_->add(metric::slow_consumer_total);
}

void request_counts::pending(std::int32_t change) const {
  if (to_ && change != 0) to_->add(metric::client_chunks_pending, change);
}

}  // namespace deepinfer
