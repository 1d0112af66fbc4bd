/// Keys of clients: compared so that the time it takes says nothing about how much was right.
///
/// A key is listed as `KEY`, or as `NAME=KEY` where its holder has a name: that of a tenant, whose
/// requests they are then, whatever they say.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

/// Takes time by the length of what was `offered` alone.
bool same_secret(std::string_view kept, std::string_view offered);

/// One entry of a list: names hold letters, digits, '-', '_' and '.', and a key may have '=' in it,
/// as base64 does at its end, without becoming a name.
struct listed_key {
  std::string_view name;  ///< empty: none
  std::string_view key;
};
listed_key split_key(std::string_view entry);

/// The entries of a key file: one a line, without blanks around it; `#` begins a comment.
std::vector<std::string> key_entries(std::string_view file_text);

/// The holder's name ("" where the key has none); nothing where no listed key is the one offered.
/// Every key of the list is compared.
std::optional<std::string> holder_of(std::span<const std::string> keys, std::string_view offered);

}  // namespace deepinfer
