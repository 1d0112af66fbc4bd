/// The vocabulary as schedulers see it: what tokens spell, and the trie that grammars walk.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "runtime/core/stop_rule.hpp"
#include "runtime/core/token_trie.hpp"
#include "runtime/text/tokenizer.hpp"

namespace deepinfer {

class tokenizer_texts final : public token_texts {
public:
  explicit tokenizer_texts(tokenizer words) : words_(std::move(words)) {}
  std::string_view bytes(token_id id) const override { return words_.bytes_of(id); }
  bool is_special(token_id id) const override { return words_.is_special(id); }

private:
  tokenizer words_;
};

/// Of the ids below `vocab_size`, the added tokens marked as what no text spells.
std::shared_ptr<const token_trie> trie_of(const tokenizer& words, const token_texts& texts,
                                          std::int32_t vocab_size);

}  // namespace deepinfer
