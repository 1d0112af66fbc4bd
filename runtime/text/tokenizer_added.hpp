/// Added tokens of a tokenizer: finds them in a text before anything else reads it.
///
/// Two passes, as in Hugging Face tokenizers: tokens with `normalized: false` over the text, then
/// the others over what is left. Each pass takes the leftmost, then the longest. `lstrip`, `rstrip`
/// swallow the white space beside a token; `single_word` wants no letter, number or `_` beside it.
/// Immutable once filled. Cost: at most the longest content per byte of text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

struct added_token {
  token_id id = 0;
  std::string content;
  bool is_special = false;
  bool is_normalized = false;
  bool strips_left = false;
  bool strips_right = false;
  bool is_single_word = false;
};

/// A part of a text: an added token, or plain text (id < 0).
struct text_part {
  std::string_view text;
  token_id id = -1;
};

/// Strings by their bytes; finds the longest that begins a text.
class byte_trie {
public:
  void add(std::string_view content, std::int32_t value);

  struct match {
    std::int32_t value = -1;  ///< < 0: none
    std::size_t size = 0;
  };
  match longest_at(std::string_view text) const;

  bool empty() const { return nodes_.empty(); }

private:
  static constexpr std::int32_t none = -1;
  struct node {
    char byte;
    std::int32_t value = none, child = none, sibling = none;
  };
  std::int32_t child_of(std::int32_t parent, char byte) const;

  std::array<std::int32_t, 256> roots_ = make_roots();
  std::vector<node> nodes_;

  static constexpr std::array<std::int32_t, 256> make_roots() {
    std::array<std::int32_t, 256> roots{};
    for (auto& root : roots) root = none;
    return roots;
  }
};

class added_tokens {
public:
  /// Errors: bad_checkpoint (empty content, id or content given twice).
  static result<added_tokens> make(std::vector<added_token> tokens);

  /// The token of this id or content, if it is an added one.
  const added_token* find(token_id id) const;
  const added_token* find(std::string_view content) const;

  /// Appends the parts of `text`, in order, none of them empty.
  void split(std::string_view text, std::vector<text_part>& parts) const;

  const std::vector<added_token>& tokens() const { return tokens_; }

private:
  void pass(const byte_trie& trie, std::string_view text, std::vector<text_part>& parts) const;

  std::vector<added_token> tokens_;
  std::unordered_map<token_id, std::size_t> by_id_;
  byte_trie raw_, normalized_;  ///< value: index in tokens_
  byte_trie all_;
};

}  // namespace deepinfer
