/// Seeded mutation of valid files, for tests that a reader survives everything.
///
/// `mutator` turns a valid file into a damaged or an odd one: bytes flipped, pieces cut, moved,
/// repeated; numbers and strings of a text replaced by hostile ones; or, for safetensors files, the
/// header edited while its length field stays right, so that the checks behind the first one are
/// reached. The same seed gives the same mutants on every machine. Header only; no library.
///
///   mutator mutate(7);
///   for (int i = 0; i < 20'000; ++i) read(mutate.text(valid));
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/random.hpp"

namespace deepinfer {

class mutator {
public:
  explicit mutator(std::uint64_t seed) : state_(seed) {}

  /// Uniform over 64 bits.
  std::uint64_t next() { return split_mix64(state_++); }
  /// Uniform over [0, count); 0 for count == 0.
  std::size_t below(std::size_t count) {
    return count == 0 ? 0 : static_cast<std::size_t>(next() % count);
  }
  /// True once in `count` calls on average.
  bool once_in(std::size_t count) { return below(count) == 0; }

  /// One to three blind edits: flip, overwrite, cut, repeat, move, insert, truncate, append.
  std::string bytes(std::string_view valid) {
    std::string mutant(valid);
    for (auto edits = 1 + below(3); edits > 0; --edits) blind_edit(mutant);
    return mutant;
  }

  /// For text formats (JSON, YAML, chat markup): mostly edits of one token (number, quoted string,
  /// word) or one line, which leave the syntax whole; one time in four a blind edit.
  std::string text(std::string_view valid) {
    if (once_in(4)) return bytes(valid);
    std::string mutant(valid);
    for (auto edits = 1 + below(2); edits > 0; --edits) token_edit(mutant);
    return mutant;
  }

  /// For safetensors files: half of the mutants have an edited header with a right length field, a
  /// quarter other data bytes below an intact header, the rest are blind edits.
  std::string safetensors(std::string_view valid) {
    std::uint64_t length = 0;
    if (valid.size() < sizeof length) return bytes(valid);
    std::memcpy(&length, valid.data(), sizeof length);
    if (length > valid.size() - sizeof length) return bytes(valid);
    const auto data_begin = sizeof length + static_cast<std::size_t>(length);
    switch (below(4)) {
    case 0: return bytes(valid);
    case 1: {
      std::string mutant(valid);
      for (auto edits = 1 + below(8); edits > 0 && mutant.size() > data_begin; --edits)
        mutant[data_begin + below(mutant.size() - data_begin)] = any_byte();
      return mutant;
    }
    default: {
      std::string header(valid.substr(sizeof length, static_cast<std::size_t>(length)));
      for (auto edits = 1 + below(2); edits > 0; --edits) token_edit(header);
      return with_header(header, valid.substr(data_begin));
    }
    }
  }

  /// A safetensors file of `header` and `data` with the right length field.
  static std::string with_header(std::string_view header, std::string_view data) {
    const auto length = static_cast<std::uint64_t>(header.size());
    std::string file(sizeof length, '\0');
    std::memcpy(file.data(), &length, sizeof length);
    return file.append(header).append(data);
  }

  /// Replaces one token by a hostile value or by another token of the same text, or changes a line.
  void token_edit(std::string& text) {
    const auto tokens = tokens_of(text);
    if (tokens.empty() || once_in(8)) return line_edit(text);
    const auto picked = tokens[below(tokens.size())];
    const auto old = text.substr(picked.begin, picked.size);
    text.replace(picked.begin, picked.size, replacement(text, tokens, old));
  }

private:
  struct token {
    std::size_t begin = 0;
    std::size_t size = 0;
  };

  char any_byte() { return static_cast<char>(next() & 0xFF); }

  void blind_edit(std::string& text) {
    const auto at = below(text.size());
    const auto size = std::min(text.size() - at, 1 + below(once_in(4) ? 200 : 8));
    switch (below(8)) {
    case 0:
      if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      return;
    case 1:
      if (!text.empty()) text[at] = any_byte();
      return;
    case 2: text.erase(at, size); return;
    case 3: text.insert(at, text.substr(at, size)); return;
    case 4: {
      const auto piece = text.substr(at, size);
      text.erase(at, size);
      text.insert(below(text.size() + 1), piece);
      return;
    }
    case 5: text.insert(at, odd_pieces[below(odd_pieces.size())]); return;
    case 6: text.resize(at); return;
    default: {
      const auto count = 1 + below(16);
      text.append(count, any_byte());
      return;
    }
    }
  }

  void line_edit(std::string& text) {
    const auto at = below(text.size());
    const auto before = text.rfind('\n', at);
    const auto begin = before == std::string::npos ? 0 : before + 1;
    const auto end = std::min(text.find('\n', at), text.size());
    const auto line = text.substr(begin, end - begin) + "\n";
    switch (below(3)) {
    case 0: text.insert(begin, line); return;  // twice
    case 1: text.erase(begin, std::min(line.size(), text.size() - begin)); return;
    default: text.insert(begin, odd_pieces[below(odd_pieces.size())]); return;
    }
  }

  std::string replacement(const std::string& text, const std::vector<token>& tokens,
                          const std::string& old) {
    if (once_in(4)) {
      const auto other = tokens[below(tokens.size())];
      return text.substr(other.begin, other.size);
    }
    if (old.front() == '"') return quoted_edit(old);
    const auto is_number = old.find_first_not_of("0123456789+-.eE") == std::string::npos;
    if (is_number && once_in(2)) return nearby_number(old);
    return std::string(odd_values[below(odd_values.size())]);
  }

  /// A string that stays quoted: a character more, less or other, or an odd content.
  std::string quoted_edit(std::string old) {
    if (old.size() < 2 || once_in(3))
      return "\"" + std::string(odd_strings[below(odd_strings.size())]) + "\"";
    const auto at = 1 + below(old.size() - 1);  // at most before the closing quote
    const char letter = letters[below(letters.size())];
    if (at + 1 < old.size() && once_in(2)) {
      once_in(2) ? void(old.erase(at, 1)) : void(old[at] = letter);
    } else {
      old.insert(at, 1, letter);
    }
    return old;
  }

  std::string nearby_number(const std::string& old) {
    const auto digits = std::min<std::size_t>(old.find_first_not_of("-+0123456789"), 18);
    std::int64_t value = 0;
    for (const char c : old.substr(0, digits))
      if (c >= '0' && c <= '9') value = value * 10 + (c - '0');
    if (old.front() == '-') value = -value;
    switch (below(6)) {
    case 0: return std::to_string(value + 1);
    case 1: return std::to_string(value - 1);
    case 2: return std::to_string(value * 2);
    case 3: return std::to_string(value / 2);
    case 4: return std::to_string(-value);
    default: return old + std::to_string(below(10));
    }
  }

  /// Quoted strings (with backslash escapes), numbers and words, in order.
  static std::vector<token> tokens_of(std::string_view text) {
    std::vector<token> tokens;
    const auto is_word = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             c == '_' || c == '.' || c == '-' || c == '+';
    };
    for (std::size_t at = 0; at < text.size();) {
      const auto begin = at;
      if (text[at] == '"') {
        for (++at; at < text.size() && text[at] != '"'; ++at)
          if (text[at] == '\\') ++at;
        at = std::min(at + 1, text.size());
      } else {
        while (at < text.size() && is_word(text[at])) ++at;
        if (at == begin) {
          ++at;
          continue;
        }
      }
      tokens.push_back({begin, at - begin});
    }
    return tokens;
  }

  static constexpr std::string_view letters = "abcxyzABC012789._- ";
  static constexpr std::array<std::string_view, 20> odd_values{"0",
                                                               "-1",
                                                               "1",
                                                               "2147483647",
                                                               "2147483648",
                                                               "-2147483648",
                                                               "4294967296",
                                                               "9223372036854775807",
                                                               "9223372036854775808",
                                                               "18446744073709551615",
                                                               "18446744073709551616",
                                                               "1e308",
                                                               "1e999",
                                                               "-0.0",
                                                               "0.5",
                                                               "null",
                                                               "true",
                                                               "[]",
                                                               "{}",
                                                               "[[0,1],{\"a\":2}]"};
  static constexpr std::array<std::string_view, 12> odd_strings{
    "",         "\\u0000",          "\\ud800",          "\\ud83d\\ude00", "\xff\xfe",
    "\xc0\x80", "\xf4\x90\x80\x80", "../../etc/passwd", "__metadata__",   "%s%n",
    "BF16",     "\\\"\\\\\\n"};
  static constexpr std::array<std::string_view, 16> odd_pieces{
    "{",       "}",
    "[",       "]",
    "\"",      ",",
    ":",       "\\",
    "\n",      "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "\xff",    "\xe2\x82",
    "//",      "-",
    "{\"a\":", std::string_view("\0\0\0\0", 4)};

  std::uint64_t state_;
};

}  // namespace deepinfer
