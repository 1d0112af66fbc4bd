/// Random JSON objects, vocabularies of byte strings, and the embedded model's: what tests of the
/// JSON grammar draw from. Every draw depends on the seed alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/core/stop_rule.hpp"

namespace deepinfer::test {

class draws {
public:
  explicit draws(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return state_ = split_mix64(state_); }
  std::uint64_t below(std::uint64_t limit) { return (next() >> 11) % limit; }
  bool chance(std::uint64_t percent) { return below(100) < percent; }
  template <class List>
  const auto& one_of(const List& list) {
    return list[static_cast<std::size_t>(below(std::size(list)))];
  }

private:
  std::uint64_t state_;
};

/// Token i spells words[i]; ids past the words spell nothing, those below `specials` are special.
class word_texts final : public token_texts {
public:
  word_texts(std::vector<std::string> words, token_id specials)
    : words_(std::move(words)),
      specials_(specials) {}
  std::string_view bytes(token_id token) const override {
    const auto at = static_cast<std::size_t>(token);
    return at < words_.size() ? std::string_view(words_[at]) : std::string_view();
  }
  bool is_special(token_id token) const override { return token < specials_; }
  std::int32_t size() const { return static_cast<std::int32_t>(words_.size()); }
  token_id find(std::string_view word) const {
    for (std::size_t i = static_cast<std::size_t>(specials_); i < words_.size(); ++i)
      if (words_[i] == word) return static_cast<token_id>(i);
    return -1;
  }

private:
  std::vector<std::string> words_;
  token_id specials_;
};

/// A valid object within the grammar's limits, with white space anywhere but behind it.
std::string random_object(draws& random, int depth = 0);

/// Two special tokens, all single bytes, `strings` strings of bytes that JSON likes, some twice.
word_texts random_vocabulary(draws& random, int strings);

/// What the tokens of the embedded model's tokenizer spell.
word_texts tiny_vocabulary();

/// Its added tokens that the file does not call special: roles, `<think>`, ...
std::vector<token_id> tiny_markers();

}  // namespace deepinfer::test
