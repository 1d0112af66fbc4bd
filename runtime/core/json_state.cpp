#include "runtime/core/json_state.hpp"

#include <string_view>

namespace deepinfer {

namespace {

constexpr bool is_space(std::uint8_t byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}
constexpr bool is_digit(std::uint8_t byte) {
  return byte >= '0' && byte <= '9';
}
constexpr bool is_hex(std::uint8_t byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}
constexpr bool is_in(std::uint8_t byte, int first, int last) {
  return byte >= first && byte <= last;
}

}  // namespace

bool json_state::go(json_place next, int with_count) {
  place = next;
  count = static_cast<std::uint8_t>(with_count);
  return true;
}

bool json_state::open(bool is_array) {
  if (depth == json_depth_limit) return false;
  if (is_array) arrays |= std::uint64_t{1} << depth;
  ++depth;
  return go(is_array ? json_place::first_value : json_place::first_key);
}

bool json_state::close(bool is_array) {
  if (is_in_array() != is_array) return false;
  --depth;
  arrays &= ~(std::uint64_t{1} << depth);
  return go(depth == 0 ? json_place::ended : json_place::after_value);
}

bool json_state::begin_value(std::uint8_t byte) {
  switch (byte) {
  case '{': return open(false);
  case '[': return open(true);
  case '"': is_key = false; return go(json_place::text);
  case 't': return go(json_place::word_true, 1);
  case 'f': return go(json_place::word_false, 1);
  case 'n': return go(json_place::word_null, 1);
  case '-': return go(json_place::minus);
  case '0': return go(json_place::zero, 1);
  default: return is_digit(byte) && go(json_place::whole, 1);
  }
}

bool json_state::between(std::uint8_t byte) {
  if (is_space(byte)) return count < json_space_limit && go(place, count + 1);
  switch (place) {
  case json_place::top: return byte == '{' && open(false);
  case json_place::first_key:
    if (byte == '}') return close(false);
    [[fallthrough]];
  case json_place::key: is_key = true; return byte == '"' && go(json_place::text);
  case json_place::colon: return byte == ':' && go(json_place::value);
  case json_place::first_value:
    if (byte == ']') return close(true);
    [[fallthrough]];
  case json_place::value: return begin_value(byte);
  default: break;
  }
  if (byte == ',') return go(is_in_array() ? json_place::value : json_place::key);
  return (byte == '}' && close(false)) || (byte == ']' && close(true));
}

bool json_state::begin_character(std::uint8_t byte) {
  if (byte < 0x20) return false;
  if (byte < 0x80) return go(json_place::text);
  if (is_in(byte, 0xC2, 0xDF)) return go(json_place::tail, 1);
  if (byte == 0xE0) return go(json_place::tail_e0);
  if (byte == 0xED) return go(json_place::tail_ed);
  if (is_in(byte, 0xE1, 0xEF)) return go(json_place::tail, 2);
  if (byte == 0xF0) return go(json_place::tail_f0);
  if (byte == 0xF4) return go(json_place::tail_f4);
  return is_in(byte, 0xF1, 0xF3) && go(json_place::tail, 3);
}

bool json_state::hex_digit(std::uint8_t byte, json_place then) {
  if (!is_hex(byte)) return false;
  return count > 1 ? go(place, count - 1) : go(then);
}

bool json_state::in_string(std::uint8_t byte) {
  switch (place) {
  case json_place::text:
    if (byte == '"') {
      const bool was_key = is_key;
      is_key = false;
      return go(was_key ? json_place::colon : json_place::after_value);
    }
    return byte == '\\' ? go(json_place::escape) : begin_character(byte);
  case json_place::escape:
    if (byte == 'u') return go(json_place::hex_first);
    return byte != 0 &&
           std::string_view("\"\\/bfnrt").find(static_cast<char>(byte)) != std::string_view::npos &&
           go(json_place::text);
  case json_place::tail:
    if (!is_in(byte, 0x80, 0xBF)) return false;
    return count > 1 ? go(place, count - 1) : go(json_place::text);
  case json_place::tail_e0: return is_in(byte, 0xA0, 0xBF) && go(json_place::tail, 1);
  case json_place::tail_ed: return is_in(byte, 0x80, 0x9F) && go(json_place::tail, 1);
  case json_place::tail_f0: return is_in(byte, 0x90, 0xBF) && go(json_place::tail, 2);
  case json_place::tail_f4: return is_in(byte, 0x80, 0x8F) && go(json_place::tail, 2);
  default: return in_escape(byte);
  }
}

bool json_state::in_escape(std::uint8_t byte) {
  const auto letter = static_cast<std::uint8_t>(byte | 0x20);  // a hex digit in lower case
  switch (place) {
  case json_place::hex_first:
    if (letter == 'd') return go(json_place::hex_after_d);
    return is_hex(byte) && go(json_place::hex_plain, 3);
  case json_place::hex_after_d:
    if (is_in(byte, '0', '7')) return go(json_place::hex_plain, 2);
    // DC00 to DFFF are low surrogates, which only follow a high one.
    return (byte == '8' || byte == '9' || letter == 'a' || letter == 'b') &&
           go(json_place::hex_high, 2);
  case json_place::hex_plain: return hex_digit(byte, json_place::text);
  case json_place::hex_high: return hex_digit(byte, json_place::low_backslash);
  case json_place::low_backslash: return byte == '\\' && go(json_place::low_u);
  case json_place::low_u: return byte == 'u' && go(json_place::low_d);
  case json_place::low_d: return letter == 'd' && go(json_place::low_c);
  default: return is_in(letter, 'c', 'f') && go(json_place::hex_plain, 2);
  }
}

bool json_state::in_number(std::uint8_t byte) {
  const bool is_number_digit = is_digit(byte);
  const bool has_room = count < json_digit_limit;
  switch (place) {
  case json_place::minus:
    if (byte == '0') return go(json_place::zero, 1);
    return is_number_digit && go(json_place::whole, 1);
  case json_place::whole:
    if (is_number_digit) return has_room && go(json_place::whole, count + 1);
    [[fallthrough]];
  case json_place::zero:
    if (byte == '.') return has_room && go(json_place::point, count);
    if (is_number_digit) return false;
    break;
  case json_place::point: return is_number_digit && go(json_place::fraction, count + 1);
  case json_place::fraction:
    if (is_number_digit) return has_room && go(json_place::fraction, count + 1);
    break;
  case json_place::exponent:
    if (byte == '+' || byte == '-') return go(json_place::exponent_sign);
    [[fallthrough]];
  case json_place::exponent_sign: return is_number_digit && go(json_place::exponent_one);
  case json_place::exponent_one:
    if (is_number_digit) return go(json_place::exponent_two);
    break;
  default: break;
  }
  if ((byte == 'e' || byte == 'E') && place < json_place::exponent) return go(json_place::exponent);
  // The number is over, and the byte belongs to what follows it.
  go(json_place::after_value);
  return between(byte);
}

bool json_state::in_word(std::uint8_t byte) {
  const std::string_view word = place == json_place::word_true    ? "true"
                                : place == json_place::word_false ? "false"
                                                                  : "null";
  if (byte != static_cast<std::uint8_t>(word[count])) return false;
  return count + 1u < word.size() ? go(place, count + 1) : go(json_place::after_value);
}

bool json_state::step(std::uint8_t byte) {
  if (place <= json_place::after_value) return between(byte);
  if (place <= json_place::tail_f4) return in_string(byte);
  if (place <= json_place::exponent_two) return in_number(byte);
  return place != json_place::ended && in_word(byte);
}

}  // namespace deepinfer
