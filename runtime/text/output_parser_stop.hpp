/// Finds the first stop string in a text that comes byte by byte. Part of the output parser.
///
/// The match that ends first wins; of several that end together, the one named first. One pass, a
/// failure function per string (Knuth, Morris, Pratt): constant work a byte on average.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace deepinfer {

class stop_matcher {
public:
  explicit stop_matcher(const std::vector<std::string>& stops) {
    for (const auto& stop : stops)
      if (!stop.empty()) patterns_.push_back({stop, failure_of(stop), 0});
  }

  /// Length of the stop string that ends with `c`, or 0.
  std::size_t push(char c) {
    std::size_t found = 0;
    for (auto& p : patterns_) {
      while (p.matched > 0 && p.text[p.matched] != c) p.matched = p.failure[p.matched - 1];
      if (p.text[p.matched] == c) ++p.matched;
      if (p.matched < p.text.size()) continue;
      if (found == 0) found = p.text.size();
      p.matched = p.failure[p.matched - 1];
    }
    return found;
  }

  /// Bytes at the end of the text that a stop string may begin with.
  std::size_t longest_partial() const {
    std::size_t longest = 0;
    for (const auto& p : patterns_) longest = std::max(longest, p.matched);
    return longest;
  }

  void reset() {
    for (auto& p : patterns_) p.matched = 0;
  }

private:
  struct pattern {
    std::string text;
    std::vector<std::size_t> failure;  ///< longest proper prefix that also ends at i
    std::size_t matched = 0;
  };

  static std::vector<std::size_t> failure_of(const std::string& text) {
    std::vector<std::size_t> failure(text.size());
    for (std::size_t i = 1, length = 0; i < text.size(); ++i) {
      while (length > 0 && text[i] != text[length]) length = failure[length - 1];
      if (text[i] == text[length]) ++length;
      failure[i] = length;
    }
    return failure;
  }

  std::vector<pattern> patterns_;
};

}  // namespace deepinfer
