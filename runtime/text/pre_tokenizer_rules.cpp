// Recognises DeepSeek's rules by meaning, so that a file that writes `\r` or `\u4e00` where another
// writes the character itself is still read by the scanner.
#include <algorithm>
#include <optional>

#include "runtime/base/utf8.hpp"
#include "runtime/text/pre_tokenizer.hpp"

namespace deepinfer {

namespace {

/// Reads a pattern item by item; an item is a character, a property or an escape, in one spelling.
class pattern_reader {
public:
  explicit pattern_reader(std::string_view pattern) : rest_(pattern) {}

  /// The pattern in canonical form: literal characters as `U+x`, classes with sorted members.
  std::string canonical() {
    std::string text;
    while (!rest_.empty()) text += rest_[0] == '[' ? character_class() : item(true) + ' ';
    return text;
  }

private:
  std::string character_class() {
    rest_.remove_prefix(1);
    std::string text = take('^') ? "[^ " : "[ ";
    std::vector<std::string> members;
    while (!rest_.empty() && rest_[0] != ']') {
      auto member = item(false);
      if (rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']') {
        rest_.remove_prefix(1);
        member += '-' + item(false);
      }
      members.push_back(std::move(member));
    }
    take(']');
    std::sort(members.begin(), members.end());
    for (const auto& member : members) text += member + ' ';
    return text + "] ";
  }

  /// One item; `has_operators`: outside of a class, where `+`, `(`, `|` and the like are no
  /// letters.
  std::string item(bool has_operators) {
    if (rest_[0] == '\\' && rest_.size() > 1) return escape();
    if (has_operators && std::string_view("+*?|(){}^$.").find(rest_[0]) != std::string_view::npos) {
      const std::string text(1, rest_[0]);
      rest_.remove_prefix(1);
      return text;
    }
    const auto step = read_utf8(rest_);
    rest_.remove_prefix(step.size);
    return literal(step.code_point);
  }

  std::string escape() {
    const char letter = rest_[1];
    rest_.remove_prefix(2);
    switch (letter) {
    case 'r': return literal('\r');
    case 'n': return literal('\n');
    case 't': return literal('\t');
    case 'u': return hexadecimal(rest_.substr(0, 4), 0);
    case 'x':
      if (const auto end = rest_.find('}'); take('{') && end != std::string_view::npos)
        return hexadecimal(rest_.substr(0, end - 1), 1);
      return hexadecimal(rest_.substr(0, 2), 0);
    case 'p':
      if (const auto end = rest_.find('}'); end != std::string_view::npos) {
        const auto name = rest_.substr(0, end + 1);
        rest_.remove_prefix(end + 1);
        return "\\p" + std::string(name);
      }
      return "\\p";
    default: break;
    }
    const bool is_shorthand = (letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z');
    return is_shorthand ? std::string{'\\', letter} : literal(static_cast<unsigned char>(letter));
  }

  std::string hexadecimal(std::string_view digits, std::size_t behind) {
    std::string text(digits);
    rest_.remove_prefix(std::min(rest_.size(), digits.size() + behind));
    if (text.empty() || text.size() > 6 ||
        text.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      return "bad-escape";
    return literal(static_cast<char32_t>(std::stoul(text, nullptr, 16)));
  }

  static std::string literal(char32_t code_point) {
    return "U+" + std::to_string(static_cast<unsigned long>(code_point));
  }

  bool take(char wanted) {
    if (rest_.empty() || rest_[0] != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::string_view rest_;
};

}  // namespace

bool are_deepseek_rules(const std::vector<split_rule>& rules) {
  static const std::string_view patterns[] = {
    R"(\p{N}{1,3})",
    R"([\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
  };
  return std::equal(rules.begin(), rules.end(), std::begin(patterns), std::end(patterns),
                    [](const split_rule& rule, std::string_view pattern) {
                      return rule.is_regex && rule.keeps_matches && rule.keeps_gaps &&
                             is_utf8(rule.pattern) &&
                             pattern_reader(rule.pattern).canonical() ==
                               pattern_reader(pattern).canonical();
                    });
}

}  // namespace deepinfer
