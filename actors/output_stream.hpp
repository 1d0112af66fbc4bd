/// One sequence's way from token ids to what its client reads: text, or reasoning, content and tool
/// calls. A plain class; the gateway keeps one per sequence.
///
/// Text leaves in whole UTF-8 characters. Bytes that may turn out to be the start of a stop string
/// are held until that is certain, so that a client never sees a part of one. The scheduler decides
/// where a sequence stops (`sequence_finish::stop_bytes`); here the text is cut at that byte.
/// Special tokens (`special: true`) are left out of the text and of what stop strings are matched
/// on, unless the request wants to see them.
///
/// Logprobs leave with the text of their tokens, so that they spell what the client reads: a token
/// of which nothing is shown because the answer ends before it, as a stop id, has none.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/client.hpp"
#include "runtime/base/utf8.hpp"
#include "runtime/core/stop_rule.hpp"
#include "runtime/text/output_parser.hpp"
#include "runtime/text/tokenizer.hpp"

namespace deepinfer {

struct output_stream_options {
  bool skip_special = true;
  bool include_stop = false;        ///< keep the matched stop string
  std::vector<std::string> stop;    ///< none of them empty
  std::optional<output_mode> chat;  ///< set: parse into reasoning, content and calls
  std::string call_suffix;          ///< makes ids of tool calls unique
};

class output_stream {
public:
  output_stream(tokenizer words, output_stream_options options);

  /// Adds what `chunk` lets the client see to `out`: text, all ids, logprobs with the bytes of
  /// their ids, and the finish. `out` may hold what earlier ones added. A chat answer that ended in
  /// calls finishes with `tool_calls`.
  void push(const sequence_chunk& chunk, token_chunk& out);

  /// A chat answer is complete although its sequence goes on: a stop string was found, or its
  /// calls ended. The gateway then ends the sequence and calls `finish_early`.
  bool has_ended() const { return parser_ && !is_finished_ && parser_->ended(); }

  /// Adds the finish of such an answer to `out`.
  void finish_early(const usage_counts& usage, token_chunk& out);

  /// That were pushed so far.
  std::int32_t tokens() const { return output_tokens_; }

private:
  enum class marker : std::uint8_t { none, think_end, dsml };
  struct piece {
    std::string_view bytes;
    marker what = marker::none;
    std::unique_ptr<token_logprobs> logprobs;  // where asked for, until a part of it is shown
  };

  /// A token that the parser has, and may hold.
  struct parsed_token {
    std::int64_t begin = 0, end = 0;  ///< bytes of the parser's text
    token_logprobs logprobs;
  };

  void add(token_id id, const token_logprobs* logprobs);
  void release(std::int64_t end, bool is_cut, token_chunk& out);
  void show(piece& it, std::size_t bytes, token_chunk& out);
  void show_deltas(token_chunk& out);
  void list_logprobs(bool is_end, token_chunk& out);
  void finish(const sequence_finish& how, token_chunk& out);

  tokenizer words_;
  output_stream_options options_;
  std::optional<token_id> think_begin_;
  std::optional<token_id> think_end_;
  std::optional<token_id> dsml_;
  stop_matcher stops_;
  std::deque<piece> waiting_;
  std::int64_t shown_bytes_ = 0;  // bytes of text before `waiting_`
  utf8_stream characters_;
  std::optional<output_parser> parser_;
  std::deque<parsed_token> parsed_;  // those with logprobs that are not listed yet
  output_deltas deltas_;
  std::int32_t reasoning_tokens_ = 0;
  std::int32_t output_tokens_ = 0;
  bool is_reasoning_ = false;
  bool is_finished_ = false;
};

}  // namespace deepinfer
