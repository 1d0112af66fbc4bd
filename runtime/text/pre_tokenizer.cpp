#include "runtime/text/pre_tokenizer.hpp"

#include <algorithm>
#include <cstdint>

#include "runtime/base/utf8.hpp"
#include "runtime/text/unicode_class.hpp"

namespace deepinfer {

namespace {

/// Class inside a run of stage 2, where stage 3 splits once more. The ideographs are letters, of
/// the kana block these are not: U+3040, 3097, 3098 are unassigned, 309B, 309C, 30A0, 30FB are
/// symbols.
constexpr char_class class_in_kana(char32_t code_point) {
  switch (code_point) {
  case 0x3040:
  case 0x3097:
  case 0x3098: return char_class::other;
  case 0x309B:
  case 0x309C:
  case 0x30A0:
  case 0x30FB: return char_class::symbol;
  default: return char_class::letter;
  }
}

constexpr bool is_ascii_letter(char32_t code_point) {
  return (code_point >= 'A' && code_point <= 'Z') || (code_point >= 'a' && code_point <= 'z');
}

struct character {
  char32_t code_point = 0;
  char_class kind = char_class::other;
  std::size_t size = 0;  ///< 0 at the end of the text
};

character character_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {};
  const auto step = read_utf8(text.substr(at));
  return {step.code_point, class_of(step.code_point), step.size};
}

/// Stage 3 over one piece the first two stages left.
class stage_three {
public:
  stage_three(std::string_view piece, bool is_cjk) : piece_(piece), is_cjk_(is_cjk) {}

  void run(std::vector<std::string_view>& pieces) const {
    std::size_t begin = 0;  // of the gap that grows while nothing matches
    for (std::size_t at = 0; at < piece_.size();) {
      const auto end = match(at);
      if (end == at) {
        at += read(at).size;
        continue;
      }
      if (begin < at) pieces.push_back(piece_.substr(begin, at - begin));
      pieces.push_back(piece_.substr(at, end - at));
      begin = at = end;
    }
    if (begin < piece_.size()) pieces.push_back(piece_.substr(begin));
  }

private:
  character read(std::size_t at) const {
    auto found = character_at(piece_, at);
    if (is_cjk_) found.kind = class_in_kana(found.code_point);
    return found;
  }

  bool is(std::size_t at, char_class kind) const {
    const auto found = read(at);
    return found.size != 0 && found.kind == kind;
  }

  std::size_t end_of_run(std::size_t at, char_class kind) const {
    for (auto next = read(at); next.size != 0 && next.kind == kind; next = read(at))
      at += next.size;
    return at;
  }

  /// End of the match that begins at `at`, or `at` where there is none.
  std::size_t match(std::size_t at) const {
    const auto first = read(at);
    const auto second = at + first.size;
    if (first.kind == char_class::letter) return end_of_run(second, char_class::letter);
    if (first.kind == char_class::symbol) {
      if (first.size == 1 && is_ascii_letter(read(second).code_point)) return ascii_word(second);
      return symbols(second);
    }
    if (first.kind == char_class::line_break) return white_space(at);
    if (is(second, char_class::letter)) return end_of_run(second, char_class::letter);
    if (first.code_point == ' ' && is(second, char_class::symbol)) return symbols(second);
    return first.kind == char_class::space ? white_space(at) : at;
  }

  std::size_t ascii_word(std::size_t at) const {
    while (at < piece_.size() && is_ascii_letter(static_cast<unsigned char>(piece_[at]))) ++at;
    return at;
  }

  std::size_t symbols(std::size_t at) const {
    return end_of_run(end_of_run(at, char_class::symbol), char_class::line_break);
  }

  /// Up to the last line break of the run if it has one; else all of it at the end of the piece;
  /// else all but the last character, which belongs to what follows, if more than one.
  std::size_t white_space(std::size_t begin) const {
    std::size_t at = begin, last = begin, after_break = begin;
    for (auto next = read(at); next.size != 0; next = read(at)) {
      if (next.kind != char_class::space && next.kind != char_class::line_break) break;
      last = at;
      at += next.size;
      if (next.kind == char_class::line_break) after_break = at;
    }
    if (after_break > begin) return after_break;
    return at == piece_.size() || last == begin ? at : last;
  }

  std::string_view piece_;
  bool is_cjk_;
};

std::size_t end_of_numbers(std::string_view text, std::size_t at) {
  for (int count = 0; count < 3; ++count) {
    const auto next = character_at(text, at);
    if (next.size == 0 || next.kind != char_class::number) break;
    at += next.size;
  }
  return at;
}

}  // namespace

void split_deepseek(std::string_view text, std::vector<std::string_view>& pieces) {
  for (std::size_t at = 0; at < text.size();) {
    const auto first = character_at(text, at);
    if (first.kind == char_class::number) {
      const auto end = end_of_numbers(text, at);
      pieces.push_back(text.substr(at, end - at));
      at = end;
      continue;
    }
    const bool is_cjk = first.kind == char_class::cjk;
    auto end = at + first.size;
    for (auto next = character_at(text, end); next.size != 0; next = character_at(text, end)) {
      if (next.kind == char_class::number || (next.kind == char_class::cjk) != is_cjk) break;
      end += next.size;
    }
    stage_three(text.substr(at, end - at), is_cjk).run(pieces);
    at = end;
  }
}

result<pre_tokenizer> pre_tokenizer::make(const std::vector<split_rule>& rules) {
  pre_tokenizer made;
  made.is_deepseek_ = are_deepseek_rules(rules);
  if (made.is_deepseek_) return made;
  for (const auto& rule : rules) {
    DI_TRY(auto matcher,
           rule.is_regex ? regex_split::compile(rule.pattern) : regex_split::literal(rule.pattern));
    made.stages_.push_back({std::move(matcher), rule.keeps_matches, rule.keeps_gaps});
  }
  return made;
}

void pre_tokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  if (is_deepseek_) return split_deepseek(text, pieces);
  std::vector<std::string_view> current, next;
  if (!text.empty()) current.push_back(text);
  for (const auto& rule : stages_) {
    next.clear();
    for (const auto piece : current)
      rule.matcher.split(piece, rule.keeps_matches, rule.keeps_gaps, next);
    current.swap(next);
  }
  pieces.insert(pieces.end(), current.begin(), current.end());
}

}  // namespace deepinfer
