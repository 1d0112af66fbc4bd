/// The byte strings of a vocabulary as a trie: what a grammar over bytes walks to mask ids.
///
/// Nodes lie in preorder: the first child of node i is i + 1, the next node outside the subtree of
/// i is nodes()[i].end. Left out are special tokens, tokens without bytes, and markers: ids that a
/// parser or template reads as more than the bytes they spell (`</think>`, a role's name), which
/// tokenizer files often do not call special. Ids are in [0, vocabulary); ids beyond a tokenizer's
/// own have no bytes there, so a vocabulary padded by the model may be given.
/// Built once per tokenizer, immutable, shared by threads. Errors: DI_CHECK on a token of more than
/// token_trie::bytes_limit bytes (a tokenizer that loads has none).
/// Cost: building sorts the vocabulary; memory is about 14 bytes per byte of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/core/stop_rule.hpp"

namespace deepinfer {

class token_trie {
public:
  static constexpr std::size_t bytes_limit = 65535;

  struct node {
    std::uint32_t end = 0;      ///< one behind the last node of the subtree
    std::uint32_t ids_end = 0;  ///< ids that spell exactly this node end here in ids()
    std::uint16_t depth = 0;    ///< bytes above this one
    std::uint8_t byte = 0;
  };

  /// `markers`: in any order; ids outside the vocabulary are ignored.
  token_trie(const token_texts& texts, std::int32_t vocabulary, std::span<const token_id> markers);

  std::int32_t vocabulary() const { return vocabulary_; }
  std::size_t longest() const { return longest_; }  ///< bytes of the longest token

  /// Every node but the root, which spells nothing.
  std::span<const node> nodes() const { return nodes_; }

  /// Ids that spell the path to `at`; often none.
  std::span<const token_id> ids_at(std::uint32_t at) const {
    const auto begin = at == 0 ? 0 : nodes_[at - 1].ids_end;
    return std::span(ids_).subspan(begin, nodes_[at].ids_end - begin);
  }

  /// The bytes of an id; none for what is left out and ids outside the vocabulary.
  std::string_view bytes(token_id id) const;

private:
  std::int32_t vocabulary_;
  std::size_t longest_ = 0;
  std::string text_;                  // of all ids, in id order
  std::vector<std::uint32_t> begin_;  // by id, into text_; vocabulary + 1 entries
  std::vector<token_id> ids_;         // with bytes, in the order of their bytes, then of ids
  std::vector<node> nodes_;
};

}  // namespace deepinfer
