/// When a sequence ends: the earliest terminator inside a run of tokens wins, and everything behind
/// it is dropped [I36].
///
/// Output by output: a stop id (eos unless ignored), a stop string that these bytes complete, then
/// the length limit (max_tokens and max_model_len, as one number of outputs). So a stop at the last
/// allowed output is a stop. A terminator before output number `min_tokens` counts as plain text.
///
/// Stop strings are matched on the bytes the tokens spell, across tokens and before any repair of
/// broken UTF-8; the bytes of special tokens are left out when the text leaves them out. The match
/// that is complete at the earliest byte wins, of those the longest, so that the way bytes are
/// split over tokens, steps or chunks changes nothing. Empty stop strings are ignored.
/// Single-threaded. Feeding allocates nothing until something matches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "messages/request.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

/// What tokens spell. Implemented over a tokenizer.
class token_texts {
public:
  virtual ~token_texts() = default;
  /// The bytes of a token, possibly part of a character; valid as long as this object.
  virtual std::string_view bytes(token_id token) const = 0;
  /// Is the token one that `skip_special_tokens` leaves out of the text?
  virtual bool is_special(token_id) const { return false; }
};

/// Finds stop strings in a byte stream. Per string it remembers only how much of it the stream's
/// end matches (Knuth, Morris, Pratt), so its memory does not grow with the text.
class stop_matcher {
public:
  explicit stop_matcher(std::span<const std::string> stops);

  struct match {
    std::int32_t stop = 0;        ///< index of the stop string
    std::int64_t stop_bytes = 0;  ///< bytes of text before it
    std::int64_t end_bytes = 0;   ///< bytes of text up to and with it
  };

  /// Reads on to the first match or the end of `bytes`. After a match the rest of `bytes` has not
  /// been read. While not `armed`, matches are read over.
  std::optional<match> feed(std::string_view bytes, bool armed = true);

  /// What comes next matches nothing that began before.
  void forget() {
    for (auto& it : patterns_) it.matched = 0;
  }

  /// Bytes read so far.
  std::int64_t text_bytes() const { return text_bytes_; }
  /// Bytes that may be shown: all but the longest end of the text that may begin a stop string.
  std::int64_t safe_bytes() const;

private:
  struct pattern {
    std::string text;
    std::vector<std::int32_t> border;  ///< by prefix length: its longest proper border
    std::int32_t matched = 0;          ///< bytes of `text` the stream ends with
  };

  std::vector<pattern> patterns_;  ///< same indices as the stops; empty ones never match
  std::int64_t text_bytes_ = 0;
};

/// Limits and terminators of one sequence.
class stop_rule {
public:
  /// `limit`: most outputs, see output_limit(). `texts` may be null without stop strings.
  stop_rule(const sampling_params& params, token_id eos, std::span<const token_id> eos_ids,
            std::int64_t limit, const token_texts* texts);

  /// Stop strings are read over until this id has been seen; matches may not reach back behind it.
  void spare_until(token_id think_end) { spared_until_ = think_end; }

  struct verdict {
    std::int32_t kept = 0;  ///< tokens of the run that are emitted, the terminator included
    finish_reason reason = finish_reason::none;  ///< none, stop or length
    std::string detail;                          ///< the stop string, or the stop id in decimal
    std::int64_t stop_bytes = -1;                ///< bytes of text before the stop string
  };

  /// Takes the next tokens of the sequence. Nothing may follow a verdict with a reason.
  verdict check(std::span<const token_id> run);

  std::int64_t limit() const { return limit_; }
  std::int64_t outputs() const { return outputs_; }

private:
  bool is_stop_id(token_id token) const;
  std::string_view text_of(token_id token) const;

  std::vector<token_id> stop_ids_;  ///< sorted
  std::vector<std::string> stops_;
  stop_matcher matcher_;
  const token_texts* texts_;
  std::int64_t limit_;
  std::int64_t min_tokens_;
  std::int64_t outputs_ = 0;
  bool skip_special_;
  token_id spared_until_ = -1;  ///< -1: stop strings apply
  bool has_ended_ = false;
};

}  // namespace deepinfer
