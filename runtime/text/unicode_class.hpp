/// Character classes of Unicode 16.0 as DeepSeek's pre-tokenizer sees them.
///
/// One byte per code point, by a two-stage table built from sorted runs at first use. Surrogates
/// and numbers above U+10FFFF are `other`. Source: data/make_unicode_classes.py, which writes the
/// runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace deepinfer {

enum class char_class : std::uint8_t {
  other,       ///< control, format, unassigned, private use
  cjk,         ///< U+4E00..9FA5, U+3040..30FF, whatever their Unicode category
  line_break,  ///< CR or LF
  number,      ///< N*
  letter,      ///< L* or M*
  symbol,      ///< P* or S*
  space,       ///< White_Space but CR and LF
};

char_class class_of(char32_t code_point);

/// Runs as (first code point << 3) | class, ascending; each run ends before the next one.
extern const std::span<const std::uint32_t> unicode_class_runs;

}  // namespace deepinfer
