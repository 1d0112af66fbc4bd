#include "runtime/text/regex_split.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/format.h>

#include "runtime/base/freed_by.hpp"

namespace deepinfer {

namespace {

constexpr std::string_view white_space =
  R"(\x09-\x0D\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

/// A match may try this often before it is given up; a long run of one character needs few tries.
constexpr std::uint32_t max_match_tries = 20'000'000;
constexpr std::size_t max_pattern_bytes = 64 * 1024;

/// The pattern with White_Space written out for `\s`, and for `\S` where it is not within a class;
/// `\uXXXX` in PCRE2's spelling.
std::string with_white_space(std::string_view pattern) {
  std::string text;
  bool is_class = false;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const char letter = pattern[at];
    if (letter == '\\' && at + 1 < pattern.size()) {
      const char escaped = pattern[++at];
      if (escaped == 's') {
        text += is_class ? std::string(white_space) : fmt::format("[{}]", white_space);
      } else if (escaped == 'S' && !is_class) {
        text += fmt::format("[^{}]", white_space);
      } else if (escaped == 'u' && at + 4 < pattern.size()) {
        text += fmt::format("\\x{{{}}}", pattern.substr(at + 1, 4));
        at += 4;
      } else {
        text += {'\\', escaped};
      }
      continue;
    }
    if (letter == '[') is_class = true;
    if (letter == ']') is_class = false;
    text += letter;
  }
  return text;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return {text.begin(), std::find(text.begin(), text.end(), PCRE2_UCHAR{0})};
}

PCRE2_SPTR units_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

using code_ptr = std::unique_ptr<pcre2_code, freed_by<pcre2_code_free>>;
using match_ptr = std::unique_ptr<pcre2_match_data, freed_by<pcre2_match_data_free>>;
using context_ptr = std::unique_ptr<pcre2_match_context, freed_by<pcre2_match_context_free>>;

std::size_t next_character(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80; ++at) {
  }
  return at;
}

}  // namespace

struct regex_split::program {
  code_ptr code;
  context_ptr limits;
};

namespace {

result<code_ptr> compile_code(std::string_view pattern, std::uint32_t options) {
  int code = 0;
  std::size_t offset = 0;
  code_ptr compiled(
    pcre2_compile(units_of(pattern), pattern.size(), options | PCRE2_UTF, &code, &offset, nullptr));
  if (compiled == nullptr)
    return fail(errc::bad_checkpoint,
                fmt::format("pattern `{}`: at offset {}: {}", pattern.substr(0, 200), offset,
                            message_of(code)));
  pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);  // without it matching is only slower
  return compiled;
}

}  // namespace

result<regex_split> regex_split::compile(const std::string& pattern) {
  const auto translated = with_white_space(pattern);
  if (translated.size() > max_pattern_bytes)
    return fail(errc::bad_checkpoint, fmt::format("pattern of {} bytes, at most {} are read",
                                                  translated.size(), max_pattern_bytes));
  // No `\C`: it could cut within a character.
  DI_TRY(auto code, compile_code(translated, PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C));
  context_ptr limits(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(limits.get(), max_match_tries);
  regex_split made;
  made.program_ = std::make_shared<program>(program{std::move(code), std::move(limits)});
  return made;
}

result<regex_split> regex_split::literal(const std::string& text) {
  if (text.empty()) return fail(errc::bad_checkpoint, "an empty string splits nothing");
  DI_TRY(auto code, compile_code(text, PCRE2_LITERAL));
  context_ptr limits(pcre2_match_context_create(nullptr));
  regex_split made;
  made.program_ = std::make_shared<program>(program{std::move(code), std::move(limits)});
  return made;
}

void regex_split::split(std::string_view text, bool keeps_matches, bool keeps_gaps,
                        std::vector<std::string_view>& pieces) const {
  const match_ptr found(pcre2_match_data_create_from_pattern(program_->code.get(), nullptr));
  const auto add = [&](std::size_t begin, std::size_t end, bool is_kept) {
    if (is_kept && begin < end) pieces.push_back(text.substr(begin, end - begin));
  };
  std::size_t begin = 0;  // of the gap
  for (std::size_t at = 0; at < text.size();) {
    const int count = pcre2_match(program_->code.get(), units_of(text), text.size(), at,
                                  PCRE2_NO_UTF_CHECK, found.get(), program_->limits.get());
    if (count < 0) break;  // nothing more, or a limit
    const auto* bounds = pcre2_get_ovector_pointer(found.get());
    const auto first = bounds[0], last = bounds[1];
    if (first >= last) {  // an empty match makes no piece
      at = next_character(text, at > first ? at : first);
      continue;
    }
    add(begin, first, keeps_gaps);
    add(first, last, keeps_matches);
    begin = at = last;
  }
  add(begin, text.size(), keeps_gaps);
}

std::string regex_split::unicode_version() {
  std::array<char, 32> text{};
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, text.data());
  return text.data();
}

}  // namespace deepinfer
