#include "runtime/model/hash_grammar.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"
#include "runtime/model/hash_ids.hpp"

namespace deepinfer {

namespace {

constexpr std::uint64_t classes = 7;

template <class Allows>
token_id first_from(std::int32_t vocab, token_id from, const Allows& allows) {
  for (std::int32_t i = 0; i < vocab; ++i) {
    const auto id = static_cast<token_id>((std::int64_t{from} + i) % vocab);
    if (allows(id)) return id;
  }
  return -1;
}

}  // namespace

void hash_grammar_state::add(token_id output) {
  if (!has_started) {
    has_started = output == hash_end_of_reasoning_id;
    return;
  }
  ++outputs;
  sum += static_cast<std::uint64_t>(output);
}

bool hash_allows(const hash_grammar& grammar, const hash_grammar_state& state, token_id id) {
  if (!state.has_started) return true;
  const auto number = state.outputs + 1;
  if (grammar.dead_end_at > 0 && number == grammar.dead_end_at) return false;
  if (grammar.ends_after > 0 && number > grammar.ends_after) return id == hash_stop_id;
  const auto wanted = (state.sum + static_cast<std::uint64_t>(number)) % classes;
  return id >= hash_first_word && static_cast<std::uint64_t>(id) % classes == wanted;
}

token_id hash_first_allowed(const hash_grammar& grammar, const hash_grammar_state& state,
                            std::int32_t vocab, token_id from) {
  return first_from(vocab, from, [&](token_id id) { return hash_allows(grammar, state, id); });
}

token_id hash_first_allowed(std::span<const std::uint32_t> mask, std::int32_t vocab,
                            token_id from) {
  DI_CHECK(std::ssize(mask) == hash_mask_words(vocab), "a mask of {} words for {} ids", mask.size(),
           vocab);
  return first_from(vocab, from, [&](token_id id) {
    return (mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1u) != 0;
  });
}

bool hash_fill_mask(const hash_grammar& grammar, const hash_grammar_state& state,
                    std::int32_t vocab, std::span<std::uint32_t> mask) {
  DI_CHECK(std::ssize(mask) == hash_mask_words(vocab), "a mask of {} words for {} ids", mask.size(),
           vocab);
  std::fill(mask.begin(), mask.end(), 0u);
  bool has_any = false;
  for (token_id id = 0; id < vocab; ++id) {
    if (!hash_allows(grammar, state, id)) continue;
    mask[static_cast<std::size_t>(id) / 32] |= 1u << (id % 32);
    has_any = true;
  }
  return has_any;
}

}  // namespace deepinfer
