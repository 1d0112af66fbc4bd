#include "runtime/text/tokenizer_added.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/utf8.hpp"
#include "runtime/text/unicode_class.hpp"

namespace deepinfer {

namespace {

bool is_space(char32_t code_point) {
  const auto kind = class_of(code_point);
  return kind == char_class::space || kind == char_class::line_break;
}

bool is_word(char32_t code_point) {
  const auto kind = class_of(code_point);
  return kind == char_class::letter || kind == char_class::number || kind == char_class::cjk ||
         code_point == '_';
}

/// The last character of a valid text, which is not empty.
utf8_step last_of(std::string_view text) {
  auto begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0u) == 0x80) --begin;
  return read_utf8(text.substr(begin));
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin == 0 || !is_word(last_of(text.substr(0, begin)).code_point)) &&
         (end == text.size() || !is_word(read_utf8(text.substr(end)).code_point));
}

std::size_t skip_space_left(std::string_view text, std::size_t begin, std::size_t limit) {
  while (begin > limit) {
    const auto step = last_of(text.substr(0, begin));
    if (!is_space(step.code_point)) break;
    begin -= step.size;
  }
  return std::max(begin, limit);
}

std::size_t skip_space_right(std::string_view text, std::size_t end) {
  while (end < text.size()) {
    const auto step = read_utf8(text.substr(end));
    if (!is_space(step.code_point)) break;
    end += step.size;
  }
  return end;
}

}  // namespace

std::int32_t byte_trie::child_of(std::int32_t parent, char byte) const {
  if (parent == none) return roots_[static_cast<unsigned char>(byte)];
  auto at = nodes_[static_cast<std::size_t>(parent)].child;
  while (at != none && nodes_[static_cast<std::size_t>(at)].byte != byte)
    at = nodes_[static_cast<std::size_t>(at)].sibling;
  return at;
}

void byte_trie::add(std::string_view content, std::int32_t value) {
  auto at = none;
  for (const char byte : content) {
    auto child = child_of(at, byte);
    if (child == none) {
      child = static_cast<std::int32_t>(nodes_.size());
      nodes_.push_back({.byte = byte});
      if (at == none) {
        roots_[static_cast<unsigned char>(byte)] = child;
      } else {
        auto& parent = nodes_[static_cast<std::size_t>(at)];
        nodes_.back().sibling = std::exchange(parent.child, child);
      }
    }
    at = child;
  }
  if (at != none) nodes_[static_cast<std::size_t>(at)].value = value;
}

byte_trie::match byte_trie::longest_at(std::string_view text) const {
  match best;
  auto at = none;
  for (std::size_t size = 0; size < text.size(); ++size) {
    at = child_of(at, text[size]);
    if (at == none) break;
    if (const auto value = nodes_[static_cast<std::size_t>(at)].value; value != none)
      best = {value, size + 1};
  }
  return best;
}

result<added_tokens> added_tokens::make(std::vector<added_token> tokens) {
  added_tokens made;
  made.tokens_ = std::move(tokens);
  for (std::size_t at = 0; at < made.tokens_.size(); ++at) {
    const auto& token = made.tokens_[at];
    if (token.content.empty())
      return fail(errc::bad_checkpoint, fmt::format("added token {}: empty content", token.id));
    if (!made.by_id_.emplace(token.id, at).second)
      return fail(errc::bad_checkpoint,
                  fmt::format("added tokens: id {} is given twice", token.id));
    if (const auto* other = made.find(token.content); other != nullptr)
      return fail(errc::bad_checkpoint, fmt::format("added token `{}` has ids {} and {}",
                                                    token.content, other->id, token.id));
    const auto value = static_cast<std::int32_t>(at);
    made.all_.add(token.content, value);
    (token.is_normalized ? made.normalized_ : made.raw_).add(token.content, value);
  }
  return made;
}

const added_token* added_tokens::find(token_id id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const added_token* added_tokens::find(std::string_view content) const {
  const auto found = all_.longest_at(content);
  if (found.value < 0 || found.size != content.size()) return nullptr;
  return &tokens_[static_cast<std::size_t>(found.value)];
}

void added_tokens::pass(const byte_trie& trie, std::string_view text,
                        std::vector<text_part>& parts) const {
  const auto add = [&](std::size_t from, std::size_t to, token_id id) {
    if (from < to) parts.push_back({text.substr(from, to - from), id});
  };
  std::size_t begin = 0;  // of the plain text before the next token
  for (std::size_t at = 0; at < text.size();) {
    const auto found = trie.longest_at(text.substr(at));
    if (found.value < 0) {
      ++at;
      continue;
    }
    const auto& token = tokens_[static_cast<std::size_t>(found.value)];
    auto end = at + found.size;
    if (token.is_single_word && !stands_alone(text, at, end)) {
      at = end;
      continue;
    }
    const auto start = token.strips_left ? skip_space_left(text, at, begin) : at;
    if (token.strips_right) end = skip_space_right(text, end);
    add(begin, start, -1);
    add(start, end, token.id);
    begin = at = end;
  }
  add(begin, text.size(), -1);
}

void added_tokens::split(std::string_view text, std::vector<text_part>& parts) const {
  std::vector<text_part> first;
  pass(raw_, text, first);
  for (const auto& part : first)
    if (part.id >= 0 || normalized_.empty())
      parts.push_back(part);
    else
      pass(normalized_, part.text, parts);
}

}  // namespace deepinfer
