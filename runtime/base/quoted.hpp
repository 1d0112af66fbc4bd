/// Texts of others within our messages: cut to whole characters, quoted, on one line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace deepinfer {

/// At most `most` bytes of it, whole characters.
std::string_view cut_utf8(std::string_view text, std::size_t most);

/// The same with "..." after it where something was left out.
std::string shortened(std::string_view text, std::size_t most = 100);

/// The same with blanks for control characters.
std::string one_line(std::string_view text, std::size_t most = 100);

/// The same in quotes.
std::string quoted(std::string_view text);

}  // namespace deepinfer
