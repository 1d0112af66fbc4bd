/// The grammar of the hash model: which ids an output may be, by arithmetic on the outputs before.
///
/// Outputs are counted from the grammar's start: the first output, or with reasoning the one after
/// id 2. Output k must be a word with id mod 7 = (sum of the ids before + k) mod 7; behind
/// `ends_after` outputs only id 1 is allowed, at output `dead_end_at` nothing is. A mask is bits of
/// ids: bit id % 32 of word id / 32. Whoever chooses takes the first allowed id at or above what it
/// would have chosen freely, wrapping over the vocabulary. Pure. Source: scenarios 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/ids.hpp"

namespace deepinfer {

struct hash_grammar {
  std::int32_t ends_after = 0;   ///< outputs before the end; 0: it never ends
  std::int32_t dead_end_at = 0;  ///< output that nothing is allowed at; 0: none
};

/// Where a grammar is, given the outputs so far. Kept also where there is no grammar.
struct hash_grammar_state {
  bool has_started = true;
  std::int32_t outputs = 0;  ///< since the start
  std::uint64_t sum = 0;     ///< of their ids

  static hash_grammar_state at_start(bool has_reasoning) { return {!has_reasoning, 0, 0}; }
  void add(token_id output);

  friend bool operator==(const hash_grammar_state&, const hash_grammar_state&) = default;
};

/// Whether `id` may be the next output.
bool hash_allows(const hash_grammar& grammar, const hash_grammar_state& state, token_id id);

/// First allowed id at or above `from`, wrapping in [0, vocab); -1: a dead end.
token_id hash_first_allowed(const hash_grammar& grammar, const hash_grammar_state& state,
                            std::int32_t vocab, token_id from);

/// The same by a mask. `mask` has hash_mask_words(vocab) words.
token_id hash_first_allowed(std::span<const std::uint32_t> mask, std::int32_t vocab, token_id from);

constexpr std::int32_t hash_mask_words(std::int32_t vocab) {
  return (vocab + 31) / 32;
}

/// Fills the mask of the next output; false: nothing is allowed.
bool hash_fill_mask(const hash_grammar& grammar, const hash_grammar_state& state,
                    std::int32_t vocab, std::span<std::uint32_t> mask);

}  // namespace deepinfer
