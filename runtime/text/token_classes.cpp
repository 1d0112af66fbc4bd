#include "runtime/text/token_classes.hpp"

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include <utf8proc.h>

#include "runtime/base/check.hpp"
#include "runtime/base/utf8.hpp"

namespace deepinfer {

namespace {

using code_points = std::u32string;

code_points decoded(std::string_view text) {
  code_points points;
  while (!text.empty()) {
    const auto step = read_utf8(text);
    points.push_back(step.code_point);
    text.remove_prefix(step.size);
  }
  return points;
}

/// Text in a normal form of Unicode.
code_points normal_form(const code_points& text, utf8proc_option_t form) {
  std::string bytes;
  for (const auto point : text) append_utf8(bytes, point);
  utf8proc_uint8_t* made = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form);
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(bytes.data()),
                                 static_cast<utf8proc_ssize_t>(bytes.size()), &made, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
  DI_CHECK(size >= 0, "normalising valid UTF-8: {}", utf8proc_errmsg(size));
  return decoded({reinterpret_cast<const char*>(made), static_cast<std::size_t>(size)});
}

bool is_mark(utf8proc_int32_t point) {
  const auto category = utf8proc_category(point);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

bool is_blank(char32_t point) {
  return point == ' ' || point == '\t' || point == '\r' || point == '\n';
}

/// White_Space of Unicode, which stripping removes.
bool is_white_space(char32_t point) {
  return (point >= 0x09 && point <= 0x0D) || point == 0x20 || point == 0x85 || point == 0xA0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 ||
         point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
}

std::string normalized(std::string_view text) {
  const auto compatible =
    normal_form(decoded(text), static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_COMPAT));
  code_points kept;
  for (const auto point : normal_form(compatible, UTF8PROC_DECOMPOSE)) {
    const auto number = static_cast<utf8proc_int32_t>(point);
    if (is_mark(number)) continue;
    const auto lower = static_cast<char32_t>(utf8proc_tolower(number));
    if (!is_blank(lower))
      kept.push_back(lower);
    else if (kept.empty() || kept.back() != ' ')
      kept.push_back(' ');
  }
  if (kept == U" ") return " ";
  std::size_t begin = 0, end = kept.size();
  while (begin < end && is_white_space(kept[begin])) ++begin;
  while (end > begin && is_white_space(kept[end - 1])) --end;
  std::string result;
  for (auto at = begin; at < end; ++at) append_utf8(result, kept[at]);
  return result;
}

}  // namespace

token_class_map token_classes(const tokenizer& words, std::int32_t vocab_size) {
  token_class_map map;
  std::unordered_map<std::string, std::int32_t> known;
  for (token_id id = 0; id < vocab_size; ++id) {
    const auto text = repair_utf8(words.bytes_of(id));
    std::string key;
    if (text.find(replacement_character) != std::string::npos)
      key = words.name_of(id);
    else if (key = normalized(text); key.empty())
      key = text;
    map.class_of.push_back(known.try_emplace(key, map.class_count).first->second);
    map.class_count = static_cast<std::int32_t>(known.size());
  }
  return map;
}

}  // namespace deepinfer
