/// A place inside a JSON text whose top value is an object: a pushdown automaton over bytes.
///
/// RFC 8259, and so that what it accepts is read by every parser and ends: strings are valid UTF-8,
/// \u escapes above the basic plane come in pairs, containers nest at most json_depth_limit deep, a
/// run of white space has at most json_space_limit bytes, a number at most json_digit_limit digits
/// before its exponent and two in it (so it is finite as a double). Nothing follows the top object.
/// From every state some byte leads on, and some way leads to the end.
/// A value of 16 bytes: copying it is the way to remember it. Errors: none.
#pragma once

#include <cstdint>

namespace deepinfer {

inline constexpr int json_depth_limit = 64;
inline constexpr int json_space_limit = 20;
inline constexpr int json_digit_limit = 40;

/// What a state waits for.
enum class json_place : std::uint8_t {
  // Between tokens; `count` is the white space just read.
  top,
  first_key,  ///< or the end of the object
  key,
  colon,
  value,
  first_value,  ///< or the end of the array
  after_value,
  // In a string.
  text,
  escape,
  hex_first,      ///< of the four digits of an escape
  hex_after_d,    ///< the second digit, which tells plain characters from surrogates
  hex_plain,      ///< `count` more digits
  hex_high,       ///< `count` more digits of a high surrogate
  low_backslash,  ///< the low surrogate's escape must follow
  low_u,
  low_d,
  low_c,
  tail,     ///< `count` more continuation bytes of a character
  tail_e0,  ///< its second byte, narrowed by the first
  tail_ed,
  tail_f0,
  tail_f4,
  // In a number; `count` is the digits before its exponent.
  minus,
  zero,
  whole,
  point,
  fraction,
  exponent,
  exponent_sign,
  exponent_one,
  exponent_two,
  // In a word; `count` bytes of it have been read.
  word_true,
  word_false,
  word_null,
  ended,
};

struct json_state {
  std::uint64_t arrays = 0;  ///< bit i: container i, from the outermost, is an array
  json_place place = json_place::top;
  std::uint8_t count = 0;
  std::uint8_t depth = 0;  ///< containers that are open
  bool is_key = false;     ///< the string being read is a key

  /// Moves past `byte`. False: it is not allowed, and the state is not to be used any more.
  bool step(std::uint8_t byte);

  bool is_in_array() const { return depth > 0 && (arrays >> (depth - 1) & 1) != 0; }
  bool has_ended() const { return place == json_place::ended; }

  friend bool operator==(const json_state&, const json_state&) = default;

private:
  bool between(std::uint8_t byte);
  bool in_string(std::uint8_t byte);
  bool in_escape(std::uint8_t byte);
  bool in_number(std::uint8_t byte);
  bool in_word(std::uint8_t byte);
  bool begin_value(std::uint8_t byte);
  bool begin_character(std::uint8_t byte);
  bool open(bool is_array);
  bool close(bool is_array);
  bool go(json_place next, int with_count = 0);
  bool hex_digit(std::uint8_t byte, json_place then);
};

}  // namespace deepinfer
