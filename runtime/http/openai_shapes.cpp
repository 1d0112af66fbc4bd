#include "runtime/http/openai_shapes.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/http/error_envelope.hpp"
#include "runtime/http/json_text.hpp"

namespace deepinfer {
namespace {

bool is_chat(const openai_frame& frame) {
  return frame.endpoint == openai_endpoint::chat;
}

/// {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":...
std::string head_of(const openai_frame& frame, std::string_view object) {
  std::string out = R"({"id":)";
  append_json_string(out, frame.id);
  out += fmt::format(R"(,"object":"{}","created":{},"model":)", object, frame.created);
  append_json_string(out, frame.model);
  out += R"(,"system_fingerprint":)";
  if (frame.fingerprint.empty())
    out += "null";
  else
    append_json_string(out, frame.fingerprint);
  return out;
}

void append_call_head(std::string& out, const tool_call_delta& call) {
  out += R"("id":)";
  append_json_string(out, call.id);
  out += R"(,"type":"function","function":{"name":)";
  append_json_string(out, call.name);
  out += R"(,"arguments":)";
  append_json_string(out, call.arguments);
  out += "}}";
}

void append_call_delta(std::string& out, const tool_call_delta& call) {
  fmt::format_to(std::back_inserter(out), R"({{"index":{},)", call.index);
  if (!call.id.empty() || !call.name.empty()) return append_call_head(out, call);
  out += R"("function":{"arguments":)";
  append_json_string(out, call.arguments);
  out += "}}";
}

bool shows_something(const token_chunk& chunk) {
  return !chunk.text.empty() || !chunk.reasoning_text.empty() || !chunk.tool_calls.empty();
}

double milliseconds(std::int64_t us) {
  return static_cast<double>(us) / 1000.0;
}

}  // namespace

void usage_sum::add(const usage_counts& usage, bool first_of_prompt) {
  completion_ += usage.completion_tokens;
  reasoning_ += usage.reasoning_tokens;
  if (!first_of_prompt) return;
  prompt_ += usage.prompt_tokens;
  cached_ += usage.cached_tokens;
}

void usage_sum::append(std::string& out) const {
  fmt::format_to(std::back_inserter(out),
                 R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
                 R"("prompt_tokens_details":{{"cached_tokens":{}}},)"
                 R"("completion_tokens_details":{{"reasoning_tokens":{}}},)"
                 R"("prompt_cache_hit_tokens":{},"prompt_cache_miss_tokens":{}}})",
                 prompt_, completion_, prompt_ + completion_, cached_, reasoning_, cached_,
                 prompt_ - cached_);
}

std::string_view finish_word(const sequence_finish& finish) {
  switch (finish.reason) {
  case finish_reason::length: return "length";
  case finish_reason::tool_calls: return "tool_calls";
  case finish_reason::resource: return "insufficient_system_resource";
  default: return "stop";
  }
}

result<void> finish_error(const sequence_finish& finish) {
  const auto reason = finish.reason;
  if (reason == finish_reason::resource && finish.usage.completion_tokens > 0) return {};
  if (reason != finish_reason::error && reason != finish_reason::abort &&
      reason != finish_reason::resource)
    return {};
  auto code = finish.code;
  if (code == errc::ok)
    code = reason == finish_reason::abort      ? errc::cancelled
           : reason == finish_reason::resource ? errc::no_blocks
                                               : errc::internal;
  const auto message = !finish.message.empty()   ? finish.message
                       : code == errc::cancelled ? "the request was cancelled"
                                                 : "the request has failed";
  return fail(code, message);
}

void append_timings(std::string& out, const request_timings& t, std::int64_t completion_tokens,
                    std::span<const std::uint64_t> seeds) {
  const auto decode = milliseconds(t.decode_us);
  // The first token comes with the prefill.
  const auto rate = completion_tokens > 1 && decode > 0.0
                      ? static_cast<double>(completion_tokens - 1) * 1000.0 / decode
                      : 0.0;
  fmt::format_to(std::back_inserter(out),
                 R"({{"queued_ms":{:.3f},"prefill_ms":{:.3f},"ttft_ms":{:.3f},"decode_ms":{:.3f},)"
                 R"("decode_tokens_per_second":{:.2f},"preemptions":{},)",
                 milliseconds(t.queued_us), milliseconds(t.prefill_us),
                 milliseconds(t.queued_us + t.prefill_us), decode, rate, t.preemptions);
  const bool is_one = std::equal(seeds.begin() + 1, seeds.end(), seeds.begin());
  out += is_one ? fmt::format(R"("seed":{}}})", seeds.front())
                : fmt::format(R"("seeds":[{}]}})", fmt::join(seeds, ","));
}

openai_stream::openai_stream(openai_frame frame, std::int32_t num_answers)
  : frame_(std::move(frame)),
    head_("data: " +
          head_of(frame_, is_chat(frame_) ? "chat.completion.chunk" : "text_completion")),
    offsets_(static_cast<std::size_t>(num_answers)) {}

void openai_stream::open(std::string& out, std::int32_t index) const {
  out += head_;
  fmt::format_to(std::back_inserter(out), R"(,"choices":[{{"index":{},)", index);
}

/// The rest of a chunk from its finish reason ("" = not yet) on.
void openai_stream::close(std::string& out, std::string_view finish,
                          const token_chunk* timed) const {
  out += R"(,"finish_reason":)";
  if (finish.empty())
    out += "null}]";
  else
    fmt::format_to(std::back_inserter(out), R"("{}"}}])", finish);
  if (frame_.include_usage) out += R"(,"usage":null)";
  if (timed) {
    out += R"(,"timings":)";
    append_timings(out, *timed->timings, timed->finish->usage.completion_tokens,
                   std::span(&timed->finish->seed, 1));
  }
  out += "}\n\n";
}

void openai_stream::begin(std::string& out) const {
  if (!is_chat(frame_)) return;
  const std::string_view first =
    frame_.thinking ? R"("content":null,"reasoning_content":"")" : R"("content":"")";
  for (std::size_t i = 0; i < offsets_.size(); ++i) {
    open(out, static_cast<std::int32_t>(i));
    fmt::format_to(std::back_inserter(out), R"("delta":{{"role":"assistant",{}}},"logprobs":null)",
                   first);
    close(out, {}, nullptr);
  }
}

void openai_stream::append_delta(std::string& out, const token_chunk& chunk) const {
  if (!is_chat(frame_)) {
    out += R"("text":)";
    return append_json_string(out, chunk.text);
  }
  out += R"("delta":{)";
  const auto begins = out.size();
  const auto separate = [&] {
    if (out.size() > begins) out += ',';
  };
  if (!chunk.reasoning_text.empty()) {
    out += R"("reasoning_content":)";
    append_json_string(out, chunk.reasoning_text);
  }
  if (!chunk.text.empty()) {
    separate();
    out += R"("content":)";
    append_json_string(out, chunk.text);
  }
  if (!chunk.tool_calls.empty()) {
    separate();
    out += R"("tool_calls":[)";
    for (std::size_t i = 0; i < chunk.tool_calls.size(); ++i) {
      if (i > 0) out += ',';
      append_call_delta(out, chunk.tool_calls[i]);
    }
    out += ']';
  }
  out += '}';
}

void openai_stream::add(const token_chunk& chunk, std::int32_t index, std::string& out) {
  auto& offset = offsets_[static_cast<std::size_t>(index)];
  logprob_text logprobs(frame_.endpoint, offset);
  if (frame_.logprobs)
    for (const auto& token : chunk.logprobs) logprobs.add(token);
  offset = logprobs.offset();
  if (shows_something(chunk) || !logprobs.empty()) {
    open(out, index);
    append_delta(out, chunk);
    out += R"(,"logprobs":)";
    if (logprobs.empty())
      out += "null";
    else
      logprobs.append(out);
    close(out, {}, nullptr);
  }
  if (!chunk.finish) return;
  usage_.add(chunk.finish->usage, index % frame_.n == 0);
  open(out, index);
  out += is_chat(frame_) ? R"("delta":{},"logprobs":null)" : R"("text":"","logprobs":null)";
  close(out, finish_word(*chunk.finish), frame_.timings && chunk.timings ? &chunk : nullptr);
}

void openai_stream::end(std::string& out) const {
  if (frame_.include_usage) {
    out += head_ + R"(,"choices":[],"usage":)";
    usage_.append(out);
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
}

void openai_stream::append_error(std::string& out, const error& why) {
  out += "data: " + error_json(why) + "\n\n";
}

openai_answers::openai_answers(openai_frame frame, std::int32_t num_answers)
  : frame_(std::move(frame)),
    answers_(static_cast<std::size_t>(num_answers), answer(frame_.endpoint)),
    seeds_(static_cast<std::size_t>(num_answers / frame_.n)) {}

void openai_answers::add(const token_chunk& chunk, std::int32_t index) {
  auto& it = answers_[static_cast<std::size_t>(index)];
  it.text += chunk.text;
  it.reasoning += chunk.reasoning_text;
  for (const auto& delta : chunk.tool_calls) {
    if (it.calls.empty() || it.calls.back().index != delta.index) {
      it.calls.push_back(delta);
    } else {
      it.calls.back().id += delta.id;
      it.calls.back().name += delta.name;
      it.calls.back().arguments += delta.arguments;
    }
  }
  if (frame_.logprobs)
    for (const auto& token : chunk.logprobs) it.logprobs.add(token);
  if (chunk.timings) {
    timings_.queued_us = std::max(timings_.queued_us, chunk.timings->queued_us);
    timings_.prefill_us = std::max(timings_.prefill_us, chunk.timings->prefill_us);
    timings_.decode_us = std::max(timings_.decode_us, chunk.timings->decode_us);
    timings_.preemptions += chunk.timings->preemptions;
  }
  if (!chunk.finish) return;
  it.finish = *chunk.finish;
  completion_tokens_ += it.finish.usage.completion_tokens;
  seeds_[static_cast<std::size_t>(index / frame_.n)] = it.finish.seed;
  usage_.add(it.finish.usage, index % frame_.n == 0);
}

void openai_answers::append_choice(std::string& out, const answer& it, std::int32_t index) const {
  fmt::format_to(std::back_inserter(out), R"({{"index":{},)", index);
  if (is_chat(frame_)) {
    out += R"("message":{"role":"assistant","content":)";
    if (it.text.empty() && !it.calls.empty())
      out += "null";
    else
      append_json_string(out, it.text);
    if (frame_.thinking || !it.reasoning.empty()) {
      out += R"(,"reasoning_content":)";
      append_json_string(out, it.reasoning);
    }
    if (!it.calls.empty()) {
      out += R"(,"tool_calls":[)";
      for (const auto& call : it.calls) {
        fmt::format_to(std::back_inserter(out), R"({}{{"index":{},)",
                       &call == &it.calls.front() ? "" : ",", call.index);
        append_call_head(out, call);
      }
      out += ']';
    }
    out += '}';
  } else {
    out += R"("text":)";
    append_json_string(out, it.text);
  }
  out += R"(,"logprobs":)";
  if (frame_.logprobs)
    it.logprobs.append(out);
  else
    out += "null";
  fmt::format_to(std::back_inserter(out), R"(,"finish_reason":"{}"}})", finish_word(it.finish));
}

std::string openai_answers::text() const {
  auto out = head_of(frame_, is_chat(frame_) ? "chat.completion" : "text_completion");
  out += R"(,"choices":[)";
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    if (i > 0) out += ',';
    append_choice(out, answers_[i], static_cast<std::int32_t>(i));
  }
  out += R"(],"usage":)";
  usage_.append(out);
  if (frame_.timings) {
    out += R"(,"timings":)";
    append_timings(out, timings_, completion_tokens_, seeds_);
  }
  out += '}';
  return out;
}

}  // namespace deepinfer
