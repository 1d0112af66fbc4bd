/// Streaming detokenizer: token ids in, whole characters out, at the earliest certain moment.
///
/// `push` returns text that is complete, valid UTF-8: an unfinished sequence (at most 3 bytes)
/// waits for the next token. U+FFFD appears once per maximal invalid part (Unicode 3.9, U+FFFD
/// substitution of maximal subparts), as soon as no continuation can save it, never before. So the
/// concatenation of all pushes and `finish` does not depend on how the ids were cut.
///
/// Unknown ids give nothing. With `skip_special`, tokens of `special: true` give nothing and do not
/// interrupt a sequence; `<｜User｜>`, `<think>` and the like are `special: false` and stay.
/// Not thread-safe: one per sequence. Keeps a (cheap) copy of the tokenizer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/utf8.hpp"
#include "runtime/text/tokenizer.hpp"

namespace deepinfer {

struct detokenizer_options {
  bool skip_special = true;
};

class detokenizer {
public:
  explicit detokenizer(tokenizer words, detokenizer_options options = {})
    : words_(std::move(words)),
      options_(options) {}

  /// Text that became certain with this token; often one piece, sometimes nothing.
  std::string push(token_id id);

  /// The same, appended to `text`.
  void push_into(std::string& text, token_id id);

  /// U+FFFD for an unfinished sequence, else nothing. Ready for a new text afterwards.
  std::string finish();

  /// Bytes the token adds under these options (for `logprobs[].bytes`); may be part of a character.
  std::string_view bytes_of(token_id id) const;

private:
  tokenizer words_;
  detokenizer_options options_;
  utf8_stream stream_;
};

/// Text of a whole list of ids.
std::string detokenize(const tokenizer& words, std::span<const token_id> ids,
                       detokenizer_options options = {});

/// An id that no token has would vanish from the text. Error: invalid_argument of the field
/// `place`.
result<void> check_known_ids(std::span<const token_id> ids, std::int32_t vocab_size,
                             const std::string& place);

}  // namespace deepinfer
