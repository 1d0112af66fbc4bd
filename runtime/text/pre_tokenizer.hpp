/// Cuts a text into the pieces that byte-pair encoding may not cross.
///
/// Rules run one after another, each on the pieces the earlier ones left; a match and a gap
/// between matches are pieces of their own (`Isolated`). DeepSeek's three rules, however their
/// regexes are spelled, run as one hand-written scanner over Unicode 16 classes
/// (unicode_class.hpp); every other list runs on PCRE2 (regex_split.hpp), whose Unicode is older.
/// Immutable; any thread. Texts are valid UTF-8. Cost: linear for DeepSeek's rules.
/// Source: interfaces.md B.3.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/text/regex_split.hpp"

namespace deepinfer {

struct split_rule {
  std::string pattern;
  bool is_regex = true;  ///< else a literal string
  bool keeps_matches = true;
  bool keeps_gaps = true;
};

/// The three stages of DeepSeek V3, V4 and V4.1:
/// 1. runs of 1 to 3 numbers; 2. runs of CJK ideographs (U+4E00..9FA5) and kana;
/// 3. the first that matches of: ASCII punctuation and ASCII letters | one character, no line
///    break, letter, punctuation or symbol, if any, and letters or marks | a space, if any,
///    punctuation or symbols, and line breaks | white space up to a line break | white space not
///    before other text | white space. What nothing matches is a piece as well.
void split_deepseek(std::string_view text, std::vector<std::string_view>& pieces);

/// Whether the rules are DeepSeek's three, compared by meaning: escapes or characters as they are,
/// members of a class in any order.
bool are_deepseek_rules(const std::vector<split_rule>& rules);

class pre_tokenizer {
public:
  /// Error bad_checkpoint: a pattern does not compile.
  static result<pre_tokenizer> make(const std::vector<split_rule>& rules);

  /// Appends the pieces of `text`, in order; they point into it and are never empty.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

  bool is_deepseek() const { return is_deepseek_; }

private:
  struct stage {
    regex_split matcher;
    bool keeps_matches, keeps_gaps;
  };

  bool is_deepseek_ = false;
  std::vector<stage> stages_;
};

}  // namespace deepinfer
