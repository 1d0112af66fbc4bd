/// Splits by a regular expression of a tokenizer other than DeepSeek's, with PCRE2.
///
/// `\s` and `\S` outside of a class are Unicode's White_Space set, as in the engine these patterns
/// were written for (PCRE2's own `\s` also takes U+180E). Properties are those of PCRE2's Unicode
/// version, so newer characters may split differently.
/// A match that exceeds PCRE2's limits ends the search: the rest of the text is one gap.
/// Immutable; any thread. Errors: bad_checkpoint (pattern and offset of the fault).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace deepinfer {

class regex_split {
public:
  static result<regex_split> compile(const std::string& pattern);

  /// Splits at each occurrence of `text` itself.
  static result<regex_split> literal(const std::string& text);

  /// Appends the pieces of `text` (valid UTF-8), never an empty one.
  void split(std::string_view text, bool keeps_matches, bool keeps_gaps,
             std::vector<std::string_view>& pieces) const;

  /// PCRE2's Unicode version, e.g. "14.0.0".
  static std::string unicode_version();

private:
  struct program;

  std::shared_ptr<const program> program_;
};

}  // namespace deepinfer
