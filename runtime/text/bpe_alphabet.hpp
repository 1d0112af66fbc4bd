/// The GPT-2 byte alphabet: each byte as a printable character, the way tokenizer.json writes
/// tokens.
///
/// Printable Latin-1 stands for itself; the other 68 bytes are U+0100 and up, in byte order, so
/// that a space is U+0120. Source: interfaces.md B.2.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

/// Bytes of a token written in the alphabet; nothing if a character is not in it.
std::optional<std::string> bytes_of_name(std::string_view name);

/// The way back; any bytes have a name.
std::string name_of_bytes(std::string_view bytes);

}  // namespace deepinfer
