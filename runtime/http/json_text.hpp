/// JSON as text that is appended to: what goes out for every token is not built as a tree.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

/// `text` in quotes. Bytes that are no UTF-8 become U+FFFD, one for each maximal part of a
/// sequence.
void append_json_string(std::string& out, std::string_view text);

/// The shortest digits that give the same float; minus infinity and what is no number is -9999.
void append_json_number(std::string& out, float value);
void append_json_number(std::string& out, double value);

/// Place of the first byte that is no UTF-8.
std::optional<std::size_t> utf8_defect(std::string_view text);

}  // namespace deepinfer
