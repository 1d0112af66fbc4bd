/// The grammar `json_object`: masks of the ids that keep a text the start of one JSON object.
///
/// A mask is found by walking the token trie with a json_state, and is remembered. What depends on
/// the top container alone is remembered once for all (a few hundred masks); tokens that close it
/// and go on, such as `"}},`, depend on what is below it, are few, and are remembered as ids by
/// the part of the stack that a token can see. So once a state has been seen, a mask costs a copy
/// of vocabulary / 32 words and two look-ups.
/// Tokens that the trie leaves out are never allowed inside; after the end of the object
/// the end ids are, and nothing else (no white space either).
/// Single-threaded: each scheduler has its own, over a shared trie. It outlives its matchers.
/// Errors: `poll` refuses grammars of other names, and requests that no id can end.
/// Memory: at most mask_limit masks and tail_limit lists; past that they are forgotten, all at
/// once.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "messages/request.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/core/grammar.hpp"
#include "runtime/core/json_state.hpp"
#include "runtime/core/token_trie.hpp"

namespace deepinfer {

/// Masks by state, shared by all sequences of a scheduler.
class json_masks {
public:
  static constexpr std::size_t mask_limit = 512;
  static constexpr std::size_t tail_limit = 4096;

  explicit json_masks(std::shared_ptr<const token_trie> trie);

  const token_trie& trie() const { return *trie_; }

  /// Overwrites `words`; false: no id is allowed. Not for a state that has ended.
  bool fill(const json_state& state, std::span<std::uint32_t> words);

  /// Nodes of the trie looked at so far: what masks have cost.
  std::int64_t visited_nodes() const { return visited_nodes_; }
  std::size_t masks() const { return masks_.size(); }
  std::size_t tails() const { return tails_.size(); }

private:
  /// What a token can tell of a state without closing its top container.
  struct top_key {
    json_place place = json_place::top;
    bool is_key = false;
    bool is_in_array = false;
    int count = 0;
    int depth_room = 0;
    auto operator<=>(const top_key&) const = default;
  };
  /// The containers below the top one, down to the last that a token can reach.
  struct stack_key {
    top_key top;
    int below = 0;
    std::uint64_t arrays = 0;
    auto operator<=>(const stack_key&) const = default;
  };
  struct top_mask {
    std::vector<std::uint32_t> words;
    std::vector<std::uint32_t> closers;  ///< nodes whose byte closes the top container
    bool is_empty = true;
  };

  top_key key_of(const json_state& state) const;
  stack_key key_of(const json_state& state, const top_key& top) const;
  const top_mask& top_of(const json_state& state, const top_key& key);
  const std::vector<token_id>& tail_of(const json_state& state, const top_mask& top,
                                       const stack_key& key);
  template <class Allow, class Close>
  void walk(std::uint32_t first, std::uint32_t last, const json_state& state, int floor,
            Allow&& allow, Close&& close);

  std::shared_ptr<const token_trie> trie_;
  // Most bytes of one kind in any token: states that differ by more than these are alike.
  int most_spaces_ = 0;
  int most_digits_ = 0;
  int most_opens_ = 0;
  int most_closes_ = 0;
  std::map<top_key, top_mask> masks_;
  std::map<stack_key, std::vector<token_id>> tails_;
  std::vector<json_state> path_;  ///< the walk's states, by depth
  std::int64_t visited_nodes_ = 0;
};

class json_matcher final : public grammar_matcher {
public:
  /// `end_ids`: what may follow the object; ids outside the vocabulary are ignored.
  json_matcher(json_masks& masks, std::vector<token_id> end_ids);

  bool fill_mask(std::span<std::uint32_t> words) override;
  bool advance(token_id token) override;
  void rewind(std::int32_t ids) override;
  bool has_ended() const override { return state_.has_ended(); }

  const json_state& state() const { return state_; }

private:
  json_masks& masks_;
  std::vector<token_id> end_ids_;
  json_state state_;
  std::vector<json_state> history_;  ///< a ring: states before the latest ids
  std::int64_t advanced_ = 0;
  std::int32_t rewindable_ = 0;
};

/// Gives every request of `grammar: json_object` its matcher, at once.
class json_grammar_source final : public grammar_source {
public:
  /// `eos`, `eos_ids`: ids that end every sequence unless its request ignores them; -1: none.
  json_grammar_source(std::shared_ptr<const token_trie> trie, token_id eos,
                      std::vector<token_id> eos_ids);

  std::unique_ptr<grammar_matcher> poll(seq_id sequence, const sampling_params& params,
                                        std::string& error) override;

private:
  json_masks masks_;
  std::vector<token_id> eos_ids_;
};

}  // namespace deepinfer
