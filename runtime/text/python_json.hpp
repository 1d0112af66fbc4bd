/// JSON text in the spelling the models were trained on, which is Python's `json.dumps` with
/// `ensure_ascii` off: `{"k": [1, 2.0], "s": "é"}`, separators ", " and ": ", keys in order.
///
/// V4.1 and V4 differ in the exponents of small doubles, see `json_numbers`.
///
/// Strings: only `"`, `\` and characters below U+0020 are escaped (\b \t \n \f \r, else \u00xx).
/// Numbers: integers as they are; doubles by the shortest digits that read back, with a point or an
/// exponent always; `-0.0` is kept.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/json.hpp"
#include "runtime/text/chat_conversation.hpp"

namespace deepinfer {

/// How doubles are spelled. Both: `1.0`, `0.0001`, `1000000000000000.0`, `1e+16`.
enum class json_numbers : std::uint8_t {
  python,  ///< V4.1: exponent from `1e-05` down, of two digits
  plain,   ///< V4: `0.00001`, exponent from 1e-6 down, no padding: `1.5e-7`
};
json_numbers json_numbers_of(chat_variant variant);

std::string python_json(const json::value& value, json_numbers numbers = json_numbers::python);

/// Appends `text` as it looks inside a JSON string, without the quotes.
void append_json_escaped(std::string_view text, std::string& out);

/// Appends a finite double.
void append_json_double(double number, json_numbers numbers, std::string& out);

}  // namespace deepinfer
