/// Engram's map from token id to token class: ids whose text is the same but for case, accents and
/// compatibility forms share a class.
///
/// For each id in [0, vocab_size) in order: text = the token decoded alone, special tokens kept. If
/// it contains U+FFFD (part of a character) the key is the token's name in tokenizer.json, else the
/// normalised text, or the text itself where that is empty. A key not seen before opens the next
/// class. Normalise: NFKC, NFD, drop marks (Mn, Mc, Me; with Mn alone the
/// release would have 99510 classes instead of its 99092), lower case, runs of [space, tab, CR, LF]
/// to one space, strip white space at both ends unless the whole is one space. Ids unknown to the
/// tokenizer decode to nothing and share one class.
/// Errors: none; the caller compares `class_count` with `engram_compressed_vocab_size`.
/// Cost: about 0.1 s for 129,280 ids. Source: model-v41.md 10.1.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/text/tokenizer.hpp"

namespace deepinfer {

struct token_class_map {
  std::vector<std::int32_t> class_of;  ///< [vocab_size]
  std::int32_t class_count = 0;
};

token_class_map token_classes(const tokenizer& words, std::int32_t vocab_size);

}  // namespace deepinfer
