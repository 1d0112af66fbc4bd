#include "actors/output_stream.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace deepinfer {
namespace {

bool starts_in_reasoning(parse_start start) {
  return start == parse_start::reasoning || start == parse_start::reasoning_continuation;
}

}  // namespace

output_stream::output_stream(tokenizer words, output_stream_options options)
  : words_(std::move(words)),
    options_(std::move(options)),
    stops_(options_.stop) {
  if (!options_.chat) return;
  think_begin_ = words_.id_of("<think>");
  think_end_ = words_.id_of("</think>");
  dsml_ = words_.id_of("｜DSML｜");
  is_reasoning_ = starts_in_reasoning(options_.chat->start);
  parser_.emplace(*options_.chat);
}

void output_stream::push(const sequence_chunk& chunk, token_chunk& out) {
  for (std::size_t i = 0; i < chunk.tokens.size(); ++i)
    add(chunk.tokens[i], i < chunk.logprobs.size() ? &chunk.logprobs[i] : nullptr);
  output_tokens_ += static_cast<std::int32_t>(chunk.tokens.size());
  out.ids.insert(out.ids.end(), chunk.tokens.begin(), chunk.tokens.end());
  if (chunk.finish)
    finish(*chunk.finish, out);
  else
    release(stops_.safe_bytes(), false, out);
}

void output_stream::add(token_id id, const token_logprobs* logprobs) {
  piece it;
  if (logprobs) {
    it.logprobs = std::make_unique<token_logprobs>(*logprobs);
    it.logprobs->texts.clear();
    for (const auto one : logprobs->ids) it.logprobs->texts.emplace_back(words_.bytes_of(one));
  }
  if (!options_.skip_special || !words_.is_special(id)) it.bytes = words_.bytes_of(id);
  if (is_reasoning_) ++reasoning_tokens_;
  // Some models open their reasoning again, which the prompt has opened already.
  if (is_reasoning_ && reasoning_tokens_ == 1 && id == think_begin_) it.bytes = {};
  if (options_.chat && id == think_end_) {
    it.what = marker::think_end;
    is_reasoning_ = false;
  } else if (options_.chat && id == dsml_) {
    it.what = marker::dsml;
  }
  // Never armed: where to stop is the scheduler's decision, here it only tells what is safe to
  // show.
  stops_.feed(it.bytes, false);
  waiting_.push_back(std::move(it));
}

/// Shows the text up to byte `end`. A piece that crosses `end` is shown up to it, but a marker is
/// whole or not at all; where the text `is_cut` there, pieces without bytes at the cut stay back.
void output_stream::release(std::int64_t end, bool is_cut, token_chunk& out) {
  while (!waiting_.empty()) {
    auto& it = waiting_.front();
    const auto left = static_cast<std::size_t>(std::max<std::int64_t>(0, end - shown_bytes_));
    if (is_cut && left == 0) return;
    if (it.bytes.size() > left) {
      if (left == 0 || it.what != marker::none) return;
      show(it, left, out);
      it.bytes.remove_prefix(left);
      shown_bytes_ += static_cast<std::int64_t>(left);
      return;
    }
    show(it, it.bytes.size(), out);
    shown_bytes_ += static_cast<std::int64_t>(it.bytes.size());
    waiting_.pop_front();
  }
}

void output_stream::show(piece& it, std::size_t bytes, token_chunk& out) {
  const auto logprobs = std::exchange(it.logprobs, nullptr);
  if (!parser_) {
    if (logprobs) out.logprobs.push_back(std::move(*logprobs));
    return characters_.push_into(out.text, it.bytes.substr(0, bytes));
  }
  const auto begin = parser_->fed();
  if (it.what == marker::think_end) {
    parser_->feed_think_end(deltas_);
  } else if (it.what == marker::dsml) {
    parser_->feed_dsml(deltas_);
  } else {
    std::string text;
    characters_.push_into(text, it.bytes.substr(0, bytes));
    parser_->feed_plain(text, deltas_);
  }
  show_deltas(out);
  if (logprobs) parsed_.push_back({begin, parser_->fed(), std::move(*logprobs)});
  list_logprobs(false, out);
}

/// Those of tokens that are part of the answer for certain; at its end all others as well, but for
/// what is behind a stop string.
void output_stream::list_logprobs(bool is_end, token_chunk& out) {
  const auto decided = parser_->decided();
  const auto is_listed = [&](const parsed_token& it) {
    if (it.end <= decided) return true;
    return parser_->stopped() ? it.begin < decided : is_end;
  };
  for (; !parsed_.empty() && is_listed(parsed_.front()); parsed_.pop_front())
    out.logprobs.push_back(std::move(parsed_.front().logprobs));
}

void output_stream::show_deltas(token_chunk& out) {
  for (auto& delta : deltas_) {
    switch (delta.what) {
    case output_delta::part::reasoning: out.reasoning_text += delta.text; break;
    case output_delta::part::content: out.text += delta.text; break;
    case output_delta::part::call_begin:
      out.tool_calls.push_back({delta.call,
                                fmt::format("call_{:02}_{}", delta.call, options_.call_suffix),
                                std::move(delta.text),
                                {}});
      break;
    case output_delta::part::call_arguments:
      out.tool_calls.push_back({delta.call, {}, {}, std::move(delta.text)});
      break;
    }
  }
  deltas_.clear();
}

void output_stream::finish_early(const usage_counts& usage, token_chunk& out) {
  sequence_finish how;
  how.reason = finish_reason::stop;
  how.usage = usage;
  how.stop_bytes = shown_bytes_;  // nothing more is shown
  finish(how, out);
  out.finish->stop_bytes = -1;
}

void output_stream::finish(const sequence_finish& how, token_chunk& out) {
  is_finished_ = true;
  // A sequence that ended at a stop id: that token is in `ids`, and in the answer, its text and its
  // logprobs, only if asked for.
  if (how.reason == finish_reason::stop && how.stop_bytes < 0 && !options_.include_stop &&
      !waiting_.empty())
    waiting_.pop_back();
  auto end = stops_.text_bytes();
  const bool is_cut = how.stop_bytes >= 0;
  if (is_cut) {
    end = how.stop_bytes;
    if (options_.include_stop) end += static_cast<std::int64_t>(how.stop_detail.size());
  }
  release(end, is_cut, out);
  const auto tail = characters_.finish();
  out.finish = how;
  out.finish->usage.reasoning_tokens = reasoning_tokens_;
  if (!parser_) {
    out.text += tail;
    return;
  }
  if (!tail.empty()) parser_->feed_plain(tail, deltas_);
  parser_->finish(deltas_);
  show_deltas(out);
  list_logprobs(true, out);
  out.finish->reason = parser_->finish_of(how.reason);
}

}  // namespace deepinfer
