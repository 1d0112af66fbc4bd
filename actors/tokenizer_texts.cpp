#include "actors/tokenizer_texts.hpp"

#include <vector>

namespace deepinfer {

std::shared_ptr<const token_trie> trie_of(const tokenizer& words, const token_texts& texts,
                                          std::int32_t vocab_size) {
  std::vector<token_id> markers;
  for (token_id id = 0; id < vocab_size; ++id)
    if (words.is_added(id)) markers.push_back(id);
  return std::make_shared<const token_trie>(texts, vocab_size, markers);
}

}  // namespace deepinfer
