/// Byte-level BPE tokenizer of a `tokenizer.json`: text to token ids and ids to bytes.
///
/// Layouts read: model BPE with merges as "a b" or ["a", "b"], `ignore_merges`, added tokens with
/// lstrip, rstrip, single_word; pre-tokenizer ByteLevel or Split stages and ByteLevel; no
/// normalizer. Anything else is an error that names the key, never a silent difference. DeepSeek's
/// own split runs as a scanner over Unicode 16 classes; other patterns run on PCRE2, with a
/// warning.
///
/// The post-processor is ignored: BOS is the caller's (the chat encoder writes it into the prompt).
/// Invalid UTF-8: by default each maximal invalid part is read as U+FFFD (WHATWG, the rule for
/// text input); `bad_bytes::keep` instead makes each maximal run of bytes outside valid sequences
/// a piece of its own, so that decoding gives the bytes back.
///
/// Immutable after load and shared by copies: copying is cheap, every method may run in any thread.
/// Errors: io_failed (no such file), bad_checkpoint (place, what was found, what was expected).
/// Cost: linear in the text but for a logarithm within one piece; scratch lives for one call.
/// Source: model-v41.md 21.1; behaviour of Hugging Face tokenizers 0.23.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

/// Whether added tokens (`<｜User｜>`, `<think>` ...) written in a text are read as such.
/// Template text has them on; what a user wrote has them off, or a user could forge a turn.
enum class specials : bool { off, on };

/// What becomes of bytes that are not UTF-8, see above.
enum class bad_bytes : bool { replace, keep };

class tokenizer {
public:
  /// Reads `path`, a tokenizer.json or a directory that holds one.
  static result<tokenizer> open(const std::string& path);

  /// Reads the text of a tokenizer.json.
  static result<tokenizer> parse(std::string_view json_text);

  /// This tokenizer for a V4.1 model: where `<｜System｜>` is missing and id 128799 is a
  /// placeholder, as in V4's file, that id is read as `<｜System｜>`, with a warning. Otherwise
  /// unchanged (a tokenizer with neither gets a warning: no chat prompt can be encoded with it).
  tokenizer as_v41() const;

  /// Largest id plus one. A model's vocabulary may be larger: those ids are unknown here.
  std::int32_t vocab_size() const;

  /// Ids of `text`; no BOS is added. Never fails.
  std::vector<token_id> encode(std::string_view text, specials mode,
                               bad_bytes rule = bad_bytes::replace) const;

  /// The same, appended to `ids`.
  void encode_into(std::vector<token_id>& ids, std::string_view text, specials mode,
                   bad_bytes rule = bad_bytes::replace) const;

  /// Byte lengths of the pieces the pre-tokenizer makes of `text` (valid UTF-8, no added tokens).
  std::vector<std::size_t> split(std::string_view text) const;

  /// Id of a token by its exact name: content of an added token, else vocabulary key.
  std::optional<token_id> id_of(std::string_view name) const;

  /// Bytes the token stands for; may be part of a character. Empty for unknown ids.
  std::string_view bytes_of(token_id id) const;

  /// The token's key in the file (bytes in the GPT-2 alphabet, or content of an added token).
  std::string name_of(token_id id) const;

  bool is_known(token_id id) const;    ///< has bytes: in the vocabulary or added
  bool is_added(token_id id) const;    ///< listed in added_tokens
  bool is_special(token_id id) const;  ///< added with `special: true` (BOS, EOS, pad ...)

  /// What a user should know about this file; one sentence each, for the log.
  const std::vector<std::string>& warnings() const;

  struct tables;  // defined beside the loader

private:
  explicit tokenizer(std::shared_ptr<const tables> loaded) : tables_(std::move(loaded)) {}

  std::shared_ptr<const tables> tables_;
};

}  // namespace deepinfer
