/// UTF-8: decoding by code point, and repair of what is not UTF-8.
///
/// Well-formed is Unicode's table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
/// An invalid part is the longest prefix of a well-formed sequence that the bytes at a position
/// make, or one byte; each such part is replaced by one U+FFFD (WHATWG, Python's "replace").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD

/// What the bytes at the front of a text are. `size` >= 1 unless the text is empty.
struct utf8_step {
  enum class kind : std::uint8_t { valid, invalid, unfinished };
  kind what = kind::unfinished;  ///< unfinished: the text ends where more bytes could complete it
  std::uint8_t size = 0;         ///< bytes of the character, or of the maximal invalid part
  char32_t code_point = 0;       ///< only where valid
};
utf8_step read_utf8(std::string_view text);

/// Appends the code point, which must be a Unicode scalar value.
void append_utf8(std::string& text, char32_t code_point);

bool is_utf8(std::string_view text);

/// The text with U+FFFD for each maximal invalid part.
std::string repair_utf8(std::string_view text);

/// The same over a text that comes in pieces.
class utf8_stream {
public:
  /// Appends to `text` what is certain after `bytes`.
  void push_into(std::string& text, std::string_view bytes);

  /// U+FFFD for an unfinished sequence, else nothing. Starts anew.
  std::string finish();

private:
  std::string held_;  // at most 3 bytes, a proper prefix of a well-formed sequence
};

}  // namespace deepinfer
